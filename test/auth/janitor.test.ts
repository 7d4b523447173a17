/** What the janitor removes, by the database's clock, and what it keeps. */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { cleanUp, janitorKinds, startJanitor } from "../../src/auth/janitor.ts";
import { createKeyOf } from "../../src/auth/limits/attempt-counters.ts";
import { createDatabaseCounters } from "../../src/auth/limits/database-counters.ts";
import { endAuthorization } from "../../src/auth/tokens/end-authorizations.ts";
import type { Database } from "../../src/platform/database/database.ts";
import { noRequest } from "../../src/platform/messaging/outbox.ts";
import { captureLog } from "../support/captured-log.ts";
import { janitorRecord } from "../support/janitor-record.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { waitFor } from "../support/wait-for.ts";
import { at, day, janitorOn } from "./janitor-fixture.ts";

describe.each(backends)("one round of the janitor on %s", (backend) => {
  const { db, round, client, authorization, replaced, ids, deleteIdentity, reasons } = janitorOn(backend);

  test("an authorization goes when the day is over on which the last of its tokens expired, and no sooner", async () => {
    const [gone, today, later] = [
      await authorization({ expires: -day }),
      await authorization({ expires: 0 }),
      await authorization({ expires: day }),
    ];
    await replaced(gone, undefined);
    await round();
    expect(await ids("id", "authorizations")).toEqual([today, later].sort());
    expect(await ids("authorization_id", "replaced_tokens")).toEqual([]);
  });

  test("an authorization that has ended stays as long as one that has not", async () => {
    const id = await authorization({});
    await endAuthorization(db(), id, "CLIENT", noRequest);
    await round();
    expect(await reasons()).toEqual({ [id]: "CLIENT" });
  });

  test("reports how many rows of which kind it has removed, and that nothing is left", async () => {
    const kinds = janitorKinds.filter((kind) => kind !== "ended_authorizations");
    await db().execute(sql`
      insert into auth.revoked_access_tokens (jti, expires_at)
      select gen_random_uuid() || '.' || n, ${at(-2 * day)} from generate_series(1, 2500) as n`);
    await db().execute(sql`insert into auth.attempts (key, points, expire) values ('k', 1, ${at(-1)})`);
    const record = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp(db(), { observer: record.observer });
    const nothing = Object.fromEntries(kinds.map((kind) => [kind, 0]));
    expect(record.rows).toEqual({ ...nothing, revoked_access_tokens: 2500, attempts: 1 });
    expect(record.caughtUp).toEqual(new Set(kinds));
    expect(record.rounds()).toBe(1);

    const stopped = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp(db(), { observer: stopped.observer, stopping: AbortSignal.abort() });
    expect([stopped.rows, stopped.caughtUp, stopped.rounds()]).toEqual([{}, new Set(), 0]);
  });

  test("a revoked access token and a redeemed proof are kept until a day after they would have expired", async () => {
    const strangerId = randomUUID();
    for (const [name, seconds] of [
      ["kept", -day + 60],
      ["gone", -day - 60],
    ] as const) {
      await db().execute(sql`
        insert into auth.revoked_access_tokens (jti, expires_at)
        values (${`${strangerId}.${name}`}, ${at(seconds)})`);
      await db().execute(sql`
        insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values (${name}::text::bytea, ${at(seconds)})`);
    }
    await round();
    expect(await ids("jti", "revoked_access_tokens")).toEqual([`${strangerId}.kept`]);
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toEqual(["\\x6b657074"]);
  });

  test("a revoked access token is kept while its authorization has a row, however far ahead the clock is", async () => {
    const [live, ended] = [await authorization({}), await authorization({ expires: -day })];
    for (const id of [live, ended])
      await db().execute(sql`
        insert into auth.revoked_access_tokens (jti, expires_at) values (${`${id}.x`}, ${at(-400 * day)})`);
    await round();
    expect(await ids("jti", "revoked_access_tokens")).toEqual([`${live}.x`]);
    // Rounds before the authorization's end need not look at it again.
    const due = sql`select from auth.revoked_access_tokens where expires_at < clock_timestamp() - interval '1 hour'`;
    expect(await rows(db(), due)).toEqual([]);
  });

  test("a redeemed proof is kept where the clock was just set ahead", async () => {
    await db().execute(sql`
      insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values ('proof', ${at(-2 * day)})`);
    // The last beat, before the clock was set.
    await db().execute(sql`insert into auth.database_pulse values (1, ${at(-3 * day)}, interval '0')`);
    await round();
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toHaveLength(1);
    await db().execute(sql`delete from auth.database_pulse`);
    await round();
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toEqual([]);
  });

  test("no authorization and no client ends where the clock was just set a month ahead", async () => {
    const id = await authorization({ expires: -2 * day });
    await client("gone");
    await db().execute(sql`update auth.clients set disabled_at = ${at(-10 * day)} where client_id = 'gone'`);
    await authorization({ clientId: "gone", expires: 100 * day });
    const generation = sql`select generation::int from auth.clients where client_id = 'gone'`;
    const before = await rows(db(), generation);
    // The last beat, before the clock was set.
    await db().execute(sql`insert into auth.database_pulse values (1, ${at(-30 * day)}, interval '0')`);
    await round();
    expect(await ids("id", "authorizations")).toContain(id);
    expect(await rows(db(), generation)).toEqual(before);
    await db().execute(sql`delete from auth.database_pulse`);
    await round();
    expect(await ids("id", "authorizations")).not.toContain(id);
    expect(await rows(db(), generation)).not.toEqual(before);
  });

  test("pauses of long ago, however long in all, keep nothing that has expired and no client", async () => {
    const id = await authorization({ expires: -30 * day });
    await client("gone");
    await db().execute(sql`update auth.clients set disabled_at = ${at(-30 * day)} where client_id = 'gone'`);
    await authorization({ clientId: "gone", expires: 100 * day });
    const generation = sql`select generation::int from auth.clients where client_id = 'gone'`;
    const before = await rows(db(), generation);
    const pauses = sql`${60}::int * interval '1 day'`;
    await db().execute(sql`
      insert into auth.database_pulse values (1, ${at(0)}, ${pauses}, ${at(-61 * day)}, ${pauses}, ${pauses})`);
    await round();
    await db().execute(sql`delete from auth.database_pulse`);
    expect(await ids("id", "authorizations")).not.toContain(id);
    expect(await rows(db(), generation)).not.toEqual(before);
  });

  test("a step that fails keeps none of the others from its work", async () => {
    const id = await authorization({ expires: -2 * day });
    await db().execute(sql`
      insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values ('proof', ${at(-2 * day)})`);
    let calls = 0;
    // The first statement is the one that removes authorizations.
    const failing = Object.create(db(), {
      execute: {
        value: (statement: SQL) =>
          calls++ === 0 ? Promise.reject(new Error("cut off")) : db().execute(statement),
      },
    });
    await expect(cleanUp(failing)).rejects.toThrow("cut off");
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toEqual([]);
    expect(await ids("id", "authorizations")).toEqual([id]);
    await round();
    expect(await ids("id", "authorizations")).toEqual([]);
  });

  test("counters of attempts go when their window has closed by the database's clock", async () => {
    const counters = createDatabaseCounters(db(), createKeyOf("https://issuer"));
    const rule = { name: "password", failures: 3, windowSeconds: 300 };
    await counters.count({ rule, subject: "somebody" });
    await round();
    expect(await ids("key", "attempts")).toHaveLength(1);
    await db().execute(sql`update auth.attempts set expire = now() - interval '1 second'`);
    await round();
    expect(await ids("key", "attempts")).toEqual([]);
  });

  test("a round goes on until nothing is left, however much there is", async () => {
    // More rows than two statements remove.
    await db().execute(sql`
      insert into auth.attempts (key, points, expire)
      select 'expired-' || n, 1, now() - interval '1 second' from generate_series(1, 2001) as n
      union all select 'kept', 1, now() + interval '1 hour'`);
    await round();
    expect(await ids("key", "attempts")).toEqual(["kept"]);
  });

  test("what is kept for a retry goes when the longest window has closed since the commit was seen", async () => {
    await client("patient", 60);
    const [open, closed, longClosed, unseen] = [
      await authorization({}),
      await authorization({}),
      await authorization({}),
      await authorization({}),
    ] as const;
    await replaced(open, 55);
    await replaced(closed, 61);
    await replaced(longClosed, 700);
    await replaced(unseen, undefined);
    await round();
    expect(await ids("authorization_id", "replaced_tokens")).toEqual([open, unseen].sort());
    // A batch stays ten minutes longer.
    expect(await ids("id", "rotation_batches")).toHaveLength(2);
    expect(await ids("id", "authorizations")).toHaveLength(4);
  });

  test("thousands of replaced tokens go in one round, but for those whose window is open", async () => {
    await db().execute(sql`
      insert into auth.replaced_tokens
      select gen_random_uuid(), '\\x00', '\\x00', md5((n / 10)::text)::uuid from generate_series(0, 3999) as n`);
    await db().execute(sql`
      insert into auth.rotation_batches
      select md5(n::text)::uuid, ${at(-3600)} + (case when n % 4 = 0 then 3600 else 0 end) * interval '1 second'
      from generate_series(0, 399) as n`);
    const record = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp(db(), { observer: record.observer });
    expect(record.rows).toMatchObject({ replaced_tokens: 3000, rotation_batches: 300 });
    expect(await ids("authorization_id", "replaced_tokens")).toHaveLength(1000);
    expect(await ids("id", "rotation_batches")).toHaveLength(100);
  });

  test("rounds and sweeps until it is stopped, and goes on after one that failed", async () => {
    const log = captureLog();
    const id = await authorization({ expires: -day });
    await authorization({});
    let failures = 0;
    const failing: Database = Object.create(db(), {
      execute: {
        value(...parameters: Parameters<Database["execute"]>) {
          failures += 1;
          if (failures <= 2) throw new Error("not now");
          return db().execute(...parameters);
        },
      },
    });
    const janitor = startJanitor({ db: failing, logger: log.logger, intervalSeconds: 0.01 });
    await deleteIdentity("u");
    await waitFor(async () => expect(Object.values(await reasons())).toEqual(["IDENTITY_DELETED"]));
    await waitFor(async () => expect(await ids("id", "authorizations")).not.toContain(id));
    await janitor.stop();
    expect(log.text()).toContain("The janitor could not finish its round; it will try again");
    const statements = failures;
    await round();
    expect(failures).toBe(statements);
  });
});
