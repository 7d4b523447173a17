/**
 * Checks that the migrations in drizzle/ are valid and produce the tables of the code. Otherwise a table that
 * changed without a migration would be noticed only at the first query in production. It also checks that each can run
 * while the version before serves. All are checked: the first of a service changes no table that was there before.
 */
import { cp, mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join, relative } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { type Outcome, ROOT } from "./command.ts";
import { drizzleKit, generate, historyOf, servicesWithTables } from "./gen-migration.ts";
import { type Effect, effectsOf, rules } from "./migration-effects.ts";
import { definitionsOf } from "./schema-definitions.ts";

/** Checks one service's history, and that it makes the tables that a first migration of today would make. */
async function checkHistory(service: string): Promise<Outcome> {
  const history = historyOf(service);
  const checked = await drizzleKit(history, ["check"], "Everything's fine");
  if (!checked.ok) return checked;
  const folder = await mkdtemp(join(tmpdir(), "gatepost-migrations-"));
  try {
    const [copy, anew] = [join(folder, "copy"), join(folder, "anew")];
    await cp(join(ROOT, history), copy, { recursive: true });
    for (const into of [copy, anew]) {
      const generated = await generate(service, relative(ROOT, into));
      if (!generated.ok) return generated;
    }
    const added = (await readdir(copy)).length > (await readdir(join(ROOT, history))).length;
    const problems = added
      ? [`src/${service}/schema.ts is ahead of its migrations. Run: npm run gen:migration -- <name>`]
      : differences(await made(service, join(ROOT, history)), await made(service, anew)).map(
          (difference) => `drizzle/${service} ${difference}`,
        );
    return { ok: problems.length === 0, stdout: "", output: problems.join("\n") };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The definitions of what a service's migrations in this folder make. */
async function made(service: string, migrationsFolder: string): Promise<ReadonlySet<string>> {
  await using database = await PGlite.create();
  for (const { sql } of readMigrationFiles({ migrationsFolder })) await effectsOf(database, sql);
  return await definitionsOf(database, service);
}

/** Messages about what a history and the files of the schema do not have in common. */
export function differences(history: ReadonlySet<string>, stated: ReadonlySet<string>): readonly string[] {
  return [
    ...[...stated.difference(history)].map((one) => `lacks what schema.ts or schema.sql states: ${one}`),
    ...[...history.difference(stated)].map(
      (one) => `makes what neither schema.ts nor schema.sql states: ${one}`,
    ),
  ];
}

/** A declared exception: `-- allow <rule> <table, column, index or constraint>: <reason>`. */
const allowance = /^-- allow (?<rule>\S+) (?<subject>\S+): \S.*$/gm;

/** Checks that no migration breaks a rule. @param folder of a service's history */
export async function checkEffects(folder: string): Promise<Outcome> {
  const journal: { entries: { tag: string }[] } = JSON.parse(
    await readFile(join(folder, "meta/_journal.json"), "utf8"),
  );
  const problems: string[] = [];
  await using database = await PGlite.create();
  for (const [number, { sql }] of readMigrationFiles({ migrationsFolder: folder }).entries()) {
    const tag = journal.entries[number]?.tag ?? "";
    const effects = await effectsOf(database, sql);
    const text = await readFile(join(folder, `${tag}.sql`), "utf8");
    const where = `drizzle/${basename(folder)}/${tag}.sql`;
    problems.push(...unallowed(effects, text).map((problem) => `${where}: ${problem}`));
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

/** Checks the migrations of every service that has tables; fails if there is none. */
export async function checkMigrations(): Promise<Outcome> {
  const outcomes: Outcome[] = [];
  for (const service of await servicesWithTables()) {
    outcomes.push(await checkHistory(service));
    outcomes.push(await checkEffects(join(ROOT, historyOf(service))));
  }
  if (outcomes.length === 0) return { ok: false, stdout: "", output: "There is no src/<service>/schema.ts." };
  const failed = outcomes.filter(({ ok }) => !ok).map(({ output }) => output);
  return { ok: failed.length === 0, stdout: "", output: failed.join("\n\n") };
}
