/** The janitor where PostgreSQL's statistics are older than the rows, so that it plans for few of them. */
import { type SQL, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { cleanUp } from "../../src/push/janitor.ts";
import { backends } from "../support/servers.ts";
import { takenForEmpty } from "../support/taken-for-empty.ts";
import { historyRetentionDays, janitorOn } from "./janitor-fixture.ts";

/** So many that a statement that looked for a batch again for each row would be ended by its time-out. */
const count = 40_000;

const oldId = sql`('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid`;

/** Rows that are needed no more, for each n, by their tables. */
const unneeded: readonly [string, SQL][] = [
  [
    "devices",
    sql`n, 'user-' || n, 'fcm', 'token-' || n, sha256(n::text::bytea), 0, null, now() - interval '1 day', now(), now()`,
  ],
  ["idempotency_keys", sql`sha256(n::text::bytea), '\\x00', gen_random_uuid(), now() - interval '1 day'`],
  ["inbox", sql`gen_random_uuid(), now() - interval '9 days'`],
  ["history_views", sql`n, ${oldId}, now()`],
  ["history_blocks", sql`n % 10, ${oldId}, 0::bit(512)`],
];

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL takes a table for empty", () => {
  const { db } = janitorOn("PostgreSQL");

  test.each(unneeded)("%s are removed all the same", async (table, values) => {
    await takenForEmpty(
      db(),
      `push.${table}`,
      sql`insert into push.${sql.identifier(table)} select ${values} from generate_series(1, ${count}::int) as n`,
    );
    let removed = 0;
    const cleaned = (kind: string, rows: number) => {
      if (kind === table) removed += rows;
    };
    await cleanUp({
      db: db(),
      historyRetentionDays,
      observer: { cleaned, caughtUp() {}, roundEnded() {} },
    });
    expect(removed).toBe(count);
  });
});
