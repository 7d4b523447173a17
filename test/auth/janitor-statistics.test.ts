/** The janitor where PostgreSQL's statistics are older than the rows, so that it plans for few of them. */
import { type SQL, sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { batchSize } from "../../src/auth/batches.ts";
import { cleanUp } from "../../src/auth/janitor.ts";
import { removeReplacedTokens } from "../../src/auth/tokens/remove-replaced-tokens.ts";
import { sweepAuthorizations } from "../../src/auth/tokens/sweep-authorizations.ts";
import type { Database } from "../../src/platform/database/database.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { takenForEmpty } from "../support/taken-for-empty.ts";
import { at, day, janitorOn } from "./janitor-fixture.ts";

const count = 12_000;
const longAgo = at(-3 * day);

/** Rows that are needed no more, for each n, by their tables. */
const unneeded: readonly [string, SQL][] = [
  ["revoked_access_tokens", sql`gen_random_uuid() || '.' || n, ${longAgo}`],
  ["redeemed_otp_proofs", sql`sha256(n::text::bytea), ${longAgo}`],
  ["attempts", sql`'key-' || n, 1, ${longAgo}`],
  ["sent_codes", sql`gen_random_uuid(), '+1202555', ${longAgo}, false`],
  [
    "challenge_sessions",
    sql`sha256(n::text::bytea), '+12025550100', 'app', null, 'challenge', 'thumbprint', null, 0, true, '\\x00',
      ${longAgo}, gen_random_uuid(), ${longAgo}, 1, 0, ${longAgo}, ${longAgo}`,
  ],
  ["rotation_batches", sql`gen_random_uuid(), ${longAgo}`],
  ["identity_endings", sql`'user-' || n, n, 'PASSWORD_CHANGED', ${longAgo}, '', '', ${longAgo}`],
];

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL takes a table for empty", () => {
  const { db, ids } = janitorOn("PostgreSQL");
  const fill = (table: string, values: SQL) =>
    takenForEmpty(
      db(),
      `auth.${table}`,
      sql`insert into auth.${sql.identifier(table)} select ${values} from generate_series(1, ${count}::int) as n`,
    );

  test.each(unneeded)(
    "%s are removed, in batches that are no larger than their limit",
    async (table, values) => {
      await fill(table, values);
      const batches: number[] = [];
      const cleaned = (kind: string, rows: number) => void (kind === table && batches.push(rows));
      await cleanUp(db(), { observer: { cleaned, caughtUp() {}, roundEnded() {} } });
      expect(batches.reduce((sum, rows) => sum + rows)).toBe(count);
      if (table !== "rotation_batches") expect(Math.max(...batches)).toBe(batchSize);
    },
  );

  describe("where replaced tokens and their batches came in one burst", () => {
    beforeEach(async () => {
      await fill("rotation_batches", sql`lpad(n::text, 32, '0')::uuid, ${longAgo}`);
      await fill("replaced_tokens", sql`gen_random_uuid(), '\\x00', '\\x00', lpad(n::text, 32, '0')::uuid`);
    });

    test("both are removed", async () => {
      expect(await removeReplacedTokens(db())).toBe(true);
      expect(await ids("authorization_id", "replaced_tokens")).toEqual([]);
      expect(await ids("id", "rotation_batches")).toEqual([]);
    });

    test("no statement scans the table of tokens, which may have millions", async () => {
      const scans = (tx: Database) =>
        rows<{ scans: number }>(
          tx,
          sql`select seq_scan::int as scans from pg_stat_xact_user_tables where relname = 'replaced_tokens'`,
        );
      await db().transaction(async (tx) => {
        const before = await scans(tx);
        await removeReplacedTokens(tx);
        expect(await scans(tx)).toEqual(before);
      });
    });
  });

  test("the sweep of endings is finished", async () => {
    await fill("identity_endings", sql`'user-' || n, n, 'PASSWORD_CHANGED', now(), '', '', null`);
    await sweepAuthorizations(db());
    expect(await ids("swept_at", "identity_endings")).not.toContain(null);
  });
});
