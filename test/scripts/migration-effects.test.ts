/** Which migrations would stop those who are served meanwhile, or break the version before: a case for each rule. */
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { effectsOf, type Rule, rules } from "../../scripts/migration-effects.ts";
import { checkEffects } from "../../scripts/migrations-check.ts";
import { root } from "../support/program.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const before = `
  drop schema if exists app cascade;
  create schema app;
  create table app.things (id bigint primary key, name varchar(10), "Kind" text, size integer, note varchar(10));
  create unique index things_name on app.things (name);
  create index things_note on app.things (note);
  alter table app.things add constraint things_size check (size > 0) not valid;
  alter table app.things add constraint things_named check (name is not null) not valid;
  alter table app.things validate constraint things_named;
  create table app.parts (id bigint primary key, kind text) partition by hash (id);
  create table app.parts_0 partition of app.parts for values with (modulus 2, remainder 0);
  create table app.parts_1 partition of app.parts for values with (modulus 2, remainder 1);
  insert into app.things values (1, 'one', 'k', 1, 'n');
  insert into app.parts values (1, 'k'), (2, 'k'), (3, 'k');`;

const stops: readonly (readonly [Rule, string, readonly string[]])[] = [
  ["rewrites-table", "app.things", ["alter table app.things alter column size type bigint"]],
  [
    "rewrites-table",
    "app.things",
    ["alter table app.things add column seen timestamptz default clock_timestamp()"],
  ],
  ["rewrites-table", "app.parts", ["alter table app.parts add column place bigserial"]],
  ["rewrites-table", "app.things", ["do $$ begin execute 'truncate app.things'; end $$"]],
  ["builds-index", "app.things_size", ["create index things_size on app.things (size)"]],
  ["builds-index", "app.parts_kind", ["create index parts_kind on app.parts (kind)"]],
  ["builds-index", "app.things_key", ["alter table app.things add constraint things_key unique (size)"]],
  ["builds-index", "app.things_name", ["reindex table app.things"]],
  [
    "validates-constraint",
    "app.things.things_id",
    ["alter table app.things add constraint things_id check (id > 0)"],
  ],
  [
    "validates-constraint",
    "app.things.things_id",
    [
      "alter table app.things add constraint things_id check (id > 0) not valid",
      "alter table app.things validate constraint things_id",
    ],
  ],
  [
    "validates-constraint",
    "app.things.things_size",
    [
      "alter table app.things add column place text",
      "alter table app.things validate constraint things_size",
    ],
  ],
  [
    "validates-constraint",
    "app.things.things_part",
    ["alter table app.things add constraint things_part foreign key (id) references app.parts"],
  ],
  ["sets-not-null", "app.things.Kind", ['alter table app.things alter column "Kind" set not null']],
  [
    "requires-column",
    "app.parts.place",
    [
      "alter table app.parts add column filler text",
      "delete from app.parts",
      "alter table app.parts add column place text not null",
    ],
  ],
  ["removes", "app.things.size", ["alter table app.things drop column size"]],
  ["removes", "app.things.size", ["alter table app.things rename column size to length"]],
  ["removes", "app.things", ["alter table app.things rename to objects"]],
  ["removes", "app.parts", ["drop table app.parts"]],
  ["removes", "app.things_name", ["drop index app.things_name"]],
  ["changes-rows", "app.things", ["update app.things set size = 2 where false"]],
  [
    "changes-rows",
    "app.parts",
    ["create table app.more (id bigint)", "insert into app.parts select id, 'k' from app.more"],
  ],
  [
    "reads-locked",
    "app.things",
    ["lock table app.things", "create table app.copies as select * from app.things"],
  ],
];

const goesOn: readonly (readonly [string, readonly string[]])[] = [
  [
    "a new table, with rows and an index",
    ["create table app.more as select 1 as id", "create index on app.more (id)"],
  ],
  ["a table made of another one's rows", ["create table app.more as select id from app.things"]],
  ["a column that may be null", ["alter table app.things add column place text"]],
  [
    "a column with a default that is the same for all rows",
    ["alter table app.things add column seen timestamptz default now() not null"],
  ],
  ["a longer text", ["alter table app.things alter column note type text"]],
  ["a constraint on rows to come", ["alter table app.things add constraint c check (id > 0) not valid"]],
  ["validating one that was there", ["alter table app.things validate constraint things_size"]],
  ["not null of what a constraint says already", ["alter table app.things alter column name set not null"]],
  [
    "an index that is built concurrently",
    ['create index concurrently "things_size" on "app"."things" (size)'],
  ],
  ["dropping an index that only helps", ["create index i on app.things (size)", "drop index app.i"]],
  ["statistics", ["analyze app.things"]],
  ["storage settings", ["alter table app.things set (autovacuum_vacuum_scale_factor = 0.01)"]],
];

const cleanup = suiteCleanup();
let database: PGlite;
beforeAll(async () => {
  database = await PGlite.create();
  cleanup.defer(() => database.close());
});

describe("a migration that stops others", () => {
  test.each(stops)("%s %s: %j", async (rule, subject, statements) => {
    await database.exec(before);
    expect(await effectsOf(database, statements)).toContainEqual({ rule, subject });
  });

  test("each rule has a case", () => {
    expect(new Set(stops.map(([rule]) => rule))).toEqual(new Set(Object.keys(rules)));
  });
});

describe("a migration that others do not notice", () => {
  test.each(goesOn)("%s", async (_what, statements) => {
    await database.exec(before);
    expect(await effectsOf(database, statements)).toEqual([]);
  });

  test("the index of a partitioned table whose partitions have got theirs", async () => {
    await database.exec(before);
    const partitions = ["parts_0", "parts_1"].map(
      (name) => `create index concurrently "${name}_kind" on "app"."${name}" (kind)`,
    );
    expect(await effectsOf(database, partitions)).toEqual([]);
    expect(await effectsOf(database, ["create index parts_kind on app.parts (kind)"])).toEqual([]);
  });
});

describe("a service's history", () => {
  /** That of auth, with one more. */
  function historyWith(sql: string): string {
    const folder = mkdtempSync(join(tmpdir(), "gatepost-history-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    cpSync(join(root, "drizzle/auth"), folder, { recursive: true });
    const file = join(folder, "meta/_journal.json");
    const journal = JSON.parse(readFileSync(file, "utf8"));
    const newest = journal.entries.at(-1);
    const next = { ...newest, idx: newest.idx + 1, when: newest.when + 1, tag: "9999_next" };
    writeFileSync(file, JSON.stringify({ ...journal, entries: [...journal.entries, next] }));
    writeFileSync(join(folder, "9999_next.sql"), sql);
    return folder;
  }
  const newest = 6;
  const statement = "ALTER TABLE auth.identities DROP COLUMN email;";

  test("is refused with the file, the reason and the way out", async () => {
    const { ok, output } = await checkEffects(historyWith(statement), newest);
    expect(ok).toBe(false);
    const said =
      /^drizzle\/gatepost-history-\w+\/9999_next\.sql: removes auth\.identities\.email\. The version before may/m;
    expect(output).toMatch(said);
    expect(output).toContain("Or say why it may: -- allow removes auth.identities.email: <reason>");
  });

  test("is taken where it says why it may", async () => {
    const reason = [
      "-- allow removes auth.identities.email: No version reads it since 0.3.",
      "-- allow removes auth.identities_email_unique: It goes with the column.",
    ];
    const { ok, output } = await checkEffects(historyWith(`${reason.join("\n")}\n${statement}`), newest);
    expect(output).toBe("");
    expect(ok).toBe(true);
  });

  test("is refused where it allows what it does not do, or gives no reason", async () => {
    const vain = await checkEffects(historyWith("-- allow removes auth.x: Gone.\nselect 1;"), newest);
    expect(vain.output).toContain('it does nothing that "allow removes auth.x" allows');
    const silent = await checkEffects(
      historyWith(`-- allow removes auth.identities.email:\n${statement}`),
      newest,
    );
    expect(silent.ok).toBe(false);
  });
});
