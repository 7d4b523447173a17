/** What differs between the tables of a history and those that schema.ts and schema.sql state. */
import { PGlite } from "@electric-sql/pglite";
import { beforeAll, expect, test } from "vitest";
import { differences } from "../../scripts/migrations-check.ts";
import { definitionsOf } from "../../scripts/schema-definitions.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const cleanup = suiteCleanup();
let database: PGlite;
beforeAll(async () => {
  database = await PGlite.create();
  cleanup.defer(() => database.close());
});

const made = `
  drop schema if exists app cascade;
  create schema app;
  create sequence app.numbers;
  create table app.things (id bigint, name text collate "C", size int default 1);
  create index things_name on app.things (name);
  create table app.parts (id bigint primary key) partition by hash (id);
  create table app.parts_0 partition of app.parts for values with (modulus 2, remainder 0);
  create index parts_id on app.parts (id);
  create function app.watch() returns trigger language plpgsql as $$ begin return new; end $$;`;

async function definitionsAfter(change: string): Promise<ReadonlySet<string>> {
  await database.exec(made);
  await database.exec(change);
  return definitionsOf(database, "app");
}

test.each([
  ["column app.things.more text", "alter table app.things add more text"],
  ["column app.things.size bigint", "alter table app.things alter size type bigint"],
  [
    "column app.things.name text not null",
    'alter table app.things alter name type text collate "default", alter name set not null',
  ],
  ["column app.things.size integer default 2", "alter table app.things alter size set default 2"],
  ["table app.things with fillfactor=50", "alter table app.things set (fillfactor = 50)"],
  [
    "table app.parts_1 FOR VALUES WITH",
    "create table app.parts_1 partition of app.parts for values with (modulus 2, remainder 1)",
  ],
  ["INCLUDE (name)", "alter table app.things add primary key (id) include (name)"],
  ["CHECK ((size > 0))", "alter table app.things add check (size > 0)"],
  ["USING hash (name)", "create index on app.things using hash (name)"],
  ["sequence app.others", "create sequence app.others"],
  ["app.other()", "create function app.other() returns int language sql as 'select 1'"],
  [
    "CREATE TRIGGER t",
    "create trigger t before insert on app.things for each row execute function app.watch()",
  ],
])("%s", async (said, change) => {
  const [plain, altered] = [await definitionsAfter(""), await definitionsAfter(change)];
  const found = differences(plain, altered);
  expect(found.join("\n")).toContain(said);
  expect(found.some((line) => line.startsWith("lacks what schema.ts or schema.sql states: "))).toBe(true);
  expect(differences(altered, plain).join("\n")).toContain(
    "makes what neither schema.ts nor schema.sql states: ",
  );
});

test("nothing differs by the order of columns, or by the name of a partition's index", async () => {
  const order = "alter table app.things drop size, add size int default 1";
  const renamed = "alter index app.parts_0_id_idx rename to other";
  for (const change of [order, renamed])
    expect(differences(await definitionsAfter(""), await definitionsAfter(change))).toEqual([]);
});
