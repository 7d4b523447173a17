/** Statements written by hand: their names follow the schema, and their rows have the types of the schema. */
import { sql } from "drizzle-orm";
import { bigint, boolean, integer, PgDialect, pgTable, smallint, text, uuid } from "drizzle-orm/pg-core";
import { drizzle } from "drizzle-orm/pg-proxy";
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../../src/platform/database/database.ts";
import { bytea, checkedJson, instant } from "../../../../src/platform/database/sql/columns.ts";
import * as readers from "../../../../src/platform/database/sql/readers.ts";
import { names } from "../../../../src/platform/database/sql/readers.ts";
import {
  computed,
  jsonMember,
  prepared,
  rawRows,
  rowCount,
  rows,
  selection,
} from "../../../../src/platform/database/sql/statements.ts";
import { backends } from "../../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../../support/service-database.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

const samples = pgTable("samples", {
  id: bigint("sample_id", { mode: "number" }).primaryKey(),
  key: uuid("sample_key").notNull(),
  at: instant("sample_at").notNull(),
  bytes: bytea("sample_bytes").notNull(),
  tags: text("sample_tags").array().notNull(),
  offsets: smallint("sample_offsets").array(),
  data: checkedJson("sample_data", readers.objectOf({ deep: readers.listOf(readers.integer) })).notNull(),
  count: integer("sample_count").notNull(),
  isNew: boolean("is_new").notNull(),
});
const sample = names(samples);
const s = names(samples, "s");
const textOf = (statement: ReturnType<typeof sql>) => new PgDialect().sqlToQuery(statement);

test.each([
  [
    "texts, names, tables and values",
    sql`select ${s.id}, ${1}, ${"a"} from ${samples} s where ${sql.raw("true")} = ${true}`,
  ],
  [
    "nothing, null and parts",
    sql`select ${undefined} ${null}, ${sql`${2} + ${sql.join([sql`${3}`, sql`4`], sql`,`)}`}`,
  ],
  ["a column, a list and a parameter", sql`select ${samples.id}, ${[1, 2]}, ${sql.param(5)}`],
  ["a prepared one", sql`${prepared(["n"], ({ n }) => sql`select ${n}`)({ n: 1 })}, ${2}`],
])("a statement with %s has the text that Drizzle gives it", async (_, statement) => {
  const seen: unknown[] = [];
  const db = drizzle(async (text, params) => {
    seen.push({ sql: text, params });
    return { rows: [] };
  });
  await rawRows(db, statement);
  const { sql: text, params } = textOf(statement);
  expect(seen).toEqual([{ sql: text, params }]);
});

test("a name is that of the column in the database, alone or with what the statement calls the table", () => {
  expect(textOf(sql`insert into ${samples} (${sample.id}) select ${s.isNew}`).sql).toBe(
    'insert into "samples" ("sample_id") select "s"."is_new"',
  );
});

test("a member of JSON is named as the schema types it", () => {
  expect(textOf(jsonMember(s.data, "deep")).sql).toBe(`("s"."sample_data" ->> 'deep')`);
  // @ts-expect-error: the schema knows no such member
  jsonMember(s.data, "depth");
});

test("a selection is the list of its fields by their names in a row", () => {
  const list = selection({ id: s.id, more: computed(readers.integer, sql`${s.count} + ${2}::int`) });
  expect(textOf(sql`select ${list}`)).toMatchObject({
    sql: 'select "s"."sample_id" as "id", "s"."sample_count" + $1::int as "more"',
    params: [2],
  });
});

describe("a prepared statement", () => {
  let written = 0;
  const find = prepared(["id", "tag"], ({ id, tag }) => {
    written += 1;
    return sql`select ${sample.id} from ${samples} where ${sample.id} = ${id} and ${7}::int > 0 and ${tag} = ${id}`;
  });

  test("is written once, and has the text and parameters that it would have in place", () => {
    const inPlace = (id: number, tag: string) =>
      sql`select ${sample.id} from ${samples} where ${sample.id} = ${id} and ${7}::int > 0 and ${tag} = ${id}`;
    for (const [id, tag] of [
      [1, "a"],
      [2, "$1"],
    ] as const) {
      expect(textOf(find({ id, tag }))).toEqual(textOf(inPlace(id, tag)));
    }
    expect(written).toBe(1);
  });

  test("can be a part of another, after its parameters", () => {
    const whole = textOf(sql`with x as (select ${"first"}) ${find({ id: 1, tag: "a" })}`);
    expect(whole.params).toEqual(["first", 1, 7, "a", 1]);
    expect(whole.sql).toContain("= $2 and $3::int > 0 and $4 = $5");
  });

  test("whose text has a dollar sign with a number of its own is refused", () => {
    expect(() => prepared([], () => sql`select '$1'`)({})).toThrow("dollar sign");
  });
});

describe("readers", () => {
  test.each([
    ["text", readers.text, 1],
    ["boolean", readers.boolean, "t"],
    ["number", readers.number, "1"],
    ["integer", readers.integer, 1.5],
    ["integer that is a text", readers.integer, "1"],
    ["one of", readers.oneOf(["a", "b"]), "c"],
    ["null", readers.text, null],
    ["undefined", readers.nullable(readers.text), undefined],
    ["list", readers.listOf(readers.integer), "{1}"],
    ["member of a list", readers.listOf(readers.integer), [1, "2"]],
    ["member of an object", readers.objectOf({ deep: readers.integer }), { deep: "1" }],
    ["object without a member", readers.objectOf({ deep: readers.integer }), { depth: 1 }],
    [
      "member that may be absent",
      readers.objectOf({ deep: readers.optional(readers.integer) }),
      { deep: "1" },
    ],
    ["JSON of a column", sample.data, { deep: ["1"] }],
    ["JSON of a column, as text", sample.data, '{"depth": []}'],
    ["row", selection({ id: sample.id }), null],
    ["field that is not there", selection({ id: sample.id }), { other: 1 }],
    ["null of a column that has none", sample.id, null],
  ])("refuse what is not as expected: %s", (_name, reader, value) => {
    expect(() => reader.read(value)).toThrow(readers.UnexpectedValueError);
  });

  test("read a member that may be absent, and none that nobody has asked for", () => {
    const object = readers.objectOf({ deep: readers.optional(readers.integer) });
    expect([{ deep: 1, other: 2 }, {}].map((value) => object.read(value))).toEqual([{ deep: 1 }, {}]);
  });

  test("say what was expected, and never the value", () => {
    expect(() => readers.integer.read("secret")).toThrow(
      /^the database returned string in place of an integer$/,
    );
  });

  test("read the outer side of a join, or nothing", () => {
    const joined = selection({ id: sample.id, count: sample.count });
    expect(joined.readJoined({ id: null, count: null }, "id")).toBeUndefined();
    expect(joined.readJoined({ id: "1", count: 2 }, "id")).toEqual({ id: 1, count: 2 });
    expect(() => joined.readJoined({ id: "1", count: null }, "id")).toThrow(readers.UnexpectedValueError);
  });
});

describe.each(backends)("rows on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });

  const source = sql`
    from (values (9007199254740991::bigint, '0190a6a0-0000-7000-8000-000000000001'::uuid,
      '2026-11-22 01:02:03.004+00'::timestamptz, '\\x00ff'::bytea, array['a,b', 'c"d'], null::smallint[],
      '{"deep": [1, 2]}'::jsonb, 3, true)) as s (${sample.id}, ${sample.key}, ${sample.at}, ${sample.bytes},
      ${sample.tags}, ${sample.offsets}, ${sample.data}, ${sample.count}, ${sample.isNew})`;
  const all = selection({ ...s, sum: computed(readers.number, sql`${s.count}::float8 / 2`) });

  test("are read as the schema types their columns", async () => {
    const [row] = await rows(database.db, all, sql`select ${all} ${source}`);
    expect(row).toEqual({
      id: Number.MAX_SAFE_INTEGER,
      key: "0190a6a0-0000-7000-8000-000000000001",
      at: new Date("2026-11-22T01:02:03.004Z"),
      bytes: expect.any(Uint8Array),
      tags: ["a,b", 'c"d'],
      offsets: null,
      data: { deep: [1, 2] },
      count: 3,
      isNew: true,
      sum: 1.5,
    });
    expect([...(row?.bytes ?? [])]).toEqual([0, 255]);
  });

  test("are read out of JSON as well", async () => {
    const part = selection({ id: s.id, tags: s.tags, at: s.at });
    const list = selection({ parts: computed(readers.listOf(part), sql`json_agg(part)`) });
    const [row] = await rows(database.db, list, sql`select ${list} from (select ${part} ${source}) as part`);
    expect(row?.parts).toEqual([
      { id: Number.MAX_SAFE_INTEGER, tags: ["a,b", 'c"d'], at: new Date("2026-11-22T01:02:03.004Z") },
    ]);
  });

  test("are refused where the statement does not select what is read", async () => {
    const reading = rows(database.db, all, sql`select ${s.id} ${source}`);
    await expect(reading).rejects.toThrow(readers.UnexpectedValueError);
  });

  test("are counted, or returned as they are", async () => {
    expect(await rowCount(database.db, sql`select from generate_series(1, 3)`)).toBe(3);
    expect(await rawRows(database.db, sql`select 1 as one`)).toEqual([{ one: 1 }]);
  });
});
