/** Which batches of rotations go after a pass through the replaced tokens, and which stay because a token needs them. */
import { type SQL, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { batchSize } from "../../../src/auth/batches.ts";
import { removeReplacedTokens } from "../../../src/auth/tokens/remove-replaced-tokens.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { backends } from "../../support/servers.ts";
import { at, janitorOn } from "../janitor-fixture.ts";

/** Connections that call `act` before the nth statement. */
function beforeStatement(db: Database, n: number, act: () => Promise<void>): Database {
  let statements = 0;
  return Object.create(db, {
    execute: {
      value: async (statement: SQL) => {
        statements += 1;
        if (statements === n) await act();
        return db.execute(statement);
      },
    },
  });
}

describe.each(backends)("replaced tokens on %s", (backend) => {
  const { db, open, authorization, replaced, ids } = janitorOn(backend);
  const remaining = async () => [
    (await ids("authorization_id", "replaced_tokens")).length,
    (await ids("id", "rotation_batches")).length,
  ];

  test("a pass that was stopped has removed no batch, as it has not seen which are needed", async () => {
    await db().execute(sql`
      insert into auth.replaced_tokens
      select gen_random_uuid(), '\\x00', '\\x00', md5(n::text)::uuid
      from generate_series(1, ${2 * batchSize}::int) as n`);
    await db().execute(sql`
      insert into auth.rotation_batches
      select md5(n::text)::uuid, ${at(-3600)} from generate_series(1, ${2 * batchSize}::int) as n`);
    const stop = new AbortController();
    const pass = removeReplacedTokens(db(), { stopping: stop.signal, cleaned: () => stop.abort() });
    expect(await pass).toBe(false);
    expect(await remaining()).toEqual([batchSize, 2 * batchSize]);
    expect(await removeReplacedTokens(db())).toBe(true);
    expect(await remaining()).toEqual([0, 0]);
  });

  test.runIf(backend === "PostgreSQL")("a token that is locked keeps its batch and later ones", async () => {
    const [earlier, locked, later] = [
      await authorization({}),
      await authorization({}),
      await authorization({}),
    ] as const;
    await replaced(earlier, 2000);
    await replaced(locked, 1300);
    await replaced(later, 700);
    const other = (await open()).db;
    await other.transaction(async (tx) => {
      await tx.execute(sql`
        select 1 from auth.replaced_tokens where authorization_id = ${locked}::uuid for update`);
      expect(await removeReplacedTokens(db())).toBe(true);
      expect(await ids("authorization_id", "replaced_tokens")).toEqual([locked]);
      expect(await remaining()).toEqual([1, 2]);
    });
    await removeReplacedTokens(db());
    expect(await remaining()).toEqual([0, 0]);
  });

  test("a batch that becomes visible after its token was looked at stays until the token is gone", async () => {
    const late = "00000000-0000-0000-0000-000000000001";
    await replaced(await authorization({}), 700);
    // The time of its stamp is earlier than the pass, as if its statement had waited since.
    await removeReplacedTokens(beforeStatement(db(), 3, () => replaced(late, 60)));
    expect(await remaining()).toEqual([1, 1]);
    await removeReplacedTokens(db());
    expect(await remaining()).toEqual([0, 1]);
  });
});
