/**
 * Checks that the migrations in drizzle/ are valid and produce the tables of the code. Otherwise a table that
 * changed without a migration would be noticed only at the first query in production.
 */
import { cp, glob, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import type { Config } from "drizzle-kit";
import { type Outcome, ROOT, run } from "./command.ts";

/**
 * Runs drizzle-kit. Its exit code is 0 for most of its errors, so only its message shows success. The message is
 * that of the pinned version; a version with another message fails here.
 */
async function drizzleKit(command: string, config: string, success: string): Promise<Outcome> {
  const outcome = await run("drizzle-kit", [command, "--config", config]);
  return { ...outcome, ok: outcome.ok && outcome.output.includes(success) };
}

/** Checks one service's history, then generates into a copy of it, which must not add a migration. */
async function checkHistory(file: string): Promise<Outcome> {
  const checked = await drizzleKit("check", file, "Everything's fine");
  if (!checked.ok) return checked;
  const { default: config }: { default: Config } = await import(pathToFileURL(join(ROOT, file)).href);
  const folder = await mkdtemp(join(tmpdir(), "gatepost-migrations-"));
  try {
    const copy = join(folder, "history");
    await cp(join(ROOT, config.out ?? "drizzle"), copy, { recursive: true });
    // drizzle-kit puts "./" before the folder, so an absolute path does not work.
    const copied = { ...config, out: relative(ROOT, copy) };
    await writeFile(join(folder, "drizzle.config.json"), JSON.stringify(copied));
    const before = await readdir(copy);
    const generated = await drizzleKit("generate", join(folder, "drizzle.config.json"), "No schema changes");
    const added = (await readdir(copy)).filter((name) => !before.includes(name));
    if (added.length === 0) return generated;
    const advice = `The tables are ahead of their migrations. Run: npx drizzle-kit generate --config ${file}`;
    return { ...generated, ok: false, output: `${generated.output}\n${advice}` };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Checks the migrations of every `drizzle.<service>.config.ts`; fails if there is none. */
export async function checkMigrations(): Promise<Outcome> {
  const outcomes: Outcome[] = [];
  for await (const file of glob("drizzle.*.config.ts", { cwd: ROOT }))
    outcomes.push(await checkHistory(file));
  if (outcomes.length === 0) {
    return { ok: false, stdout: "", output: `There is no drizzle.<service>.config.ts in ${ROOT}.` };
  }
  const failed = outcomes.filter(({ ok }) => !ok).map(({ output }) => output);
  return { ok: failed.length === 0, stdout: "", output: failed.join("\n\n") };
}
