/**
 * Checks that the migrations in drizzle/ are valid and produce the tables of the code. Otherwise a table that
 * changed without a migration would be noticed only at the first query in production. It also checks that each can run
 * while the version before serves.
 */
import { cp, glob, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import { pathToFileURL } from "node:url";
import { PGlite } from "@electric-sql/pglite";
import type { Config } from "drizzle-kit";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { type Outcome, ROOT, run } from "./command.ts";
import { type Effect, effectsOf, rules } from "./migration-effects.ts";

/** The newest migration of each service that is older than the rules: some of those ran while nobody was served. */
const newestUnchecked: Readonly<Record<string, number>> = { auth: 6, push: 18 };

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
    // drizzle-kit puts "./" before the folder, so the path must be relative.
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

/** A declared exception: `-- allow <rule> <table, column, index or constraint>: <reason>`. */
const allowance = /^-- allow (?<rule>\S+) (?<subject>\S+): \S.*$/gm;

/**
 * Checks that each migration after `newest` breaks no rule.
 * @param folder of a service's history
 */
export async function checkEffects(folder: string, newest: number): Promise<Outcome> {
  const journal: { entries: { tag: string }[] } = JSON.parse(
    await readFile(join(folder, "meta/_journal.json"), "utf8"),
  );
  const problems: string[] = [];
  const database = await PGlite.create();
  try {
    for (const [number, { sql }] of readMigrationFiles({ migrationsFolder: folder }).entries()) {
      const tag = journal.entries[number]?.tag ?? "";
      const effects = await effectsOf(database, sql);
      if (number <= newest) continue;
      const text = await readFile(join(folder, `${tag}.sql`), "utf8");
      const where = `drizzle/${basename(folder)}/${tag}.sql`;
      problems.push(...unallowed(effects, text).map((problem) => `${where}: ${problem}`));
    }
  } finally {
    await database.close();
  }
  return { ok: problems.length === 0, stdout: "", output: problems.join("\n") };
}

/** Messages about effects that the file does not allow, and about exceptions that it declares without an effect. */
function unallowed(effects: readonly Effect[], text: string): string[] {
  const key = ({ rule, subject }: { rule?: string; subject?: string }) => `${rule} ${subject}`;
  const allowed = new Set([...text.matchAll(allowance)].map(({ groups }) => key(groups ?? {})));
  const known = new Set(effects.map(key));
  return [
    ...effects
      .filter((effect) => !allowed.has(key(effect)))
      .map(
        (effect) =>
          `${key(effect)}. ${rules[effect.rule]} Or say why it may: -- allow ${key(effect)}: <reason>`,
      ),
    ...[...allowed]
      .filter((one) => !known.has(one))
      .map((one) => `it does nothing that "allow ${one}" allows`),
  ];
}

/** Checks the migrations of every `drizzle.<service>.config.ts`; fails if there is none. */
export async function checkMigrations(): Promise<Outcome> {
  const outcomes: Outcome[] = [];
  for await (const file of glob("drizzle.*.config.ts", { cwd: ROOT })) {
    const [, service = ""] = file.split(".");
    outcomes.push(await checkHistory(file));
    outcomes.push(await checkEffects(join(ROOT, "drizzle", service), newestUnchecked[service] ?? -1));
  }
  if (outcomes.length === 0) {
    return { ok: false, stdout: "", output: `There is no drizzle.<service>.config.ts in ${ROOT}.` };
  }
  const failed = outcomes.filter(({ ok }) => !ok).map(({ output }) => output);
  return { ok: failed.length === 0, stdout: "", output: failed.join("\n\n") };
}
