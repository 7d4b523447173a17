/**
 * `npm run gen:migration [-- <name>]`: writes a migration for each service whose schema.ts has changed, or a
 * `…-schema.ts` beside it. The first one of a service also has its schema.sql, which says what Drizzle cannot.
 */
import { existsSync } from "node:fs";
import { glob, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { readArguments } from "../src/command.ts";
import { type Outcome, ROOT, run, say, usageIn } from "./command.ts";

/** The services that have tables. */
export async function servicesWithTables(): Promise<readonly string[]> {
  const files = await Array.fromAsync(glob("src/*/schema.ts", { cwd: ROOT }));
  return files.map((file) => basename(dirname(file))).sort();
}

/** The folder of a service's migrations, from the root. */
export const historyOf = (service: string) => `drizzle/${service}`;

/**
 * Runs drizzle-kit on a history. Its exit code is 0 for most of its errors, so only its message shows success. The
 * messages are those of the pinned version; a version with others fails here.
 * @param folder of the history, from the root: drizzle-kit puts "./" before it
 */
export async function drizzleKit(
  folder: string,
  args: readonly string[],
  ...successes: readonly string[]
): Promise<Outcome> {
  const outcome = await run("drizzle-kit", [...args, "--dialect", "postgresql", "--out", folder]);
  return { ...outcome, ok: outcome.ok && successes.some((success) => outcome.output.includes(success)) };
}

export const unchanged = "No schema changes";

/**
 * Writes the next migration of a service, unless its schema.ts says what its newest snapshot does.
 * @param folder of its history, from the root
 * @param name of the migration; that of the first one is "first"
 */
export async function generate(service: string, folder: string, name?: string): Promise<Outcome> {
  const first = join(ROOT, folder, "0000_first.sql");
  const isFirst = !existsSync(first);
  const own = isFirst ? "first" : name;
  const args = ["generate", "--schema", `./src/${service}/*schema.ts`, ...(own ? ["--name", own] : [])];
  const outcome = await drizzleKit(folder, args, unchanged, "Your SQL migration file");
  if (!isFirst || !outcome.ok) return outcome;
  const tables = await readFile(first, "utf8");
  const rest = await readFile(join(ROOT, `src/${service}/schema.sql`), "utf8");
  // An index of a partitioned table is made after its partitions, and so in each of them.
  const indexes = tables.search(/^CREATE (UNIQUE )?INDEX/m);
  if (indexes < 0) throw new Error(`No table of ${service} has an index.`);
  const made = `${tables.slice(0, indexes)}${rest}--> statement-breakpoint\n${tables.slice(indexes)}\n`;
  await writeFile(first, made);
  return outcome;
}

if (import.meta.main) {
  const { positionals } = readArguments({
    usage: usageIn(import.meta.filename),
    options: {},
    operands: [0, 1],
  });
  for (const service of await servicesWithTables()) {
    const { ok, output } = await generate(service, historyOf(service), positionals[0]);
    say(`${service}: ${output.split("\n").at(-1)}`);
    if (ok) continue;
    say(output);
    process.exitCode = 1;
  }
}
