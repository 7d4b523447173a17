/** The janitor where PostgreSQL's statistics are older than the rows, so that it plans for few of them. */
import { type SQL, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { cleanUp } from "../../src/push/janitor.ts";
import { backends } from "../support/servers.ts";
import { takenForEmpty } from "../support/taken-for-empty.ts";
import { historyRetentionDays, janitorOn } from "./janitor-fixture.ts";

const count = 12_000;

const oldId = sql`('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid`;

/** Rows that are needed no more, for each n, by their tables. */
const unneeded: readonly [string, SQL][] = [
  ["idempotency_keys", sql`sha256(n::text::bytea), '\\x00', gen_random_uuid(), now() - interval '1 day'`],
  ["inbox", sql`gen_random_uuid(), now() - interval '9 days'`],
  ["history_views", sql`n, ${oldId}, now()`],
  ["history_blocks", sql`n % 10, ${oldId}, 0::bit(512)`],
];

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL takes a table for empty", () => {
  const { db } = janitorOn("PostgreSQL");

  test.each(unneeded)(
    "%s are removed, in batches that are no larger than their limit",
    async (table, values) => {
      await takenForEmpty(
        db(),
        `push.${table}`,
        sql`insert into push.${sql.identifier(table)} select ${values} from generate_series(1, ${count}::int) as n`,
      );
      const batches: number[] = [];
      const cleaned = (kind: string, rows: number) => void (kind === table && batches.push(rows));
      await cleanUp({
        db: db(),
        historyRetentionDays,
        observer: { cleaned, caughtUp() {}, roundEnded() {} },
      });
      expect(batches.reduce((sum, rows) => sum + rows)).toBe(count);
      expect(Math.max(...batches)).toBeLessThanOrEqual(5_000);
    },
  );
});
