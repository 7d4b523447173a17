/**
 * The janitor: it removes what is needed no more by the database's clock, keeps all else, marks what has ended with its
 * identity or its client, and does not disturb concurrent requests.
 */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { cleanUp, janitorKinds, startJanitor } from "../../src/auth/janitor.ts";
import { createKeyOf } from "../../src/auth/limits/attempt-counters.ts";
import { createDatabaseCounters } from "../../src/auth/limits/database-counters.ts";
import { authMigrations } from "../../src/auth/service.ts";
import { endAuthorization, endIdentity } from "../../src/auth/tokens/end-authorizations.ts";
import { sweepAuthorizations } from "../../src/auth/tokens/sweep-authorizations.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { captureLog } from "../support/captured-log.ts";
import { janitorRecord } from "../support/janitor-record.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../support/service-database.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const hour = 60 * 60;
const day = 24 * hour;

describe.each(backends)("one round of the janitor on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  const tables = [
    "authorizations",
    "replaced_tokens",
    "rotation_batches",
    "identity_endings",
    "revoked_access_tokens",
    "redeemed_otp_proofs",
    "attempts",
    "outbox",
    "clients",
  ];
  beforeEach(async () => {
    for (const table of tables) {
      await database.db.execute(sql`delete from ${sql.identifier("auth")}.${sql.identifier(table)}`);
    }
    await client("mobile-app");
  });

  const round = () => cleanUp(database.db);
  const sweep = () => sweepAuthorizations(database.db);
  /** The moment in so many seconds, by the database's clock. */
  const at = (seconds: number) => sql`clock_timestamp() + ${seconds}::int * interval '1 second'`;
  async function client(id: string, grace = 30) {
    await database.db.execute(sql`
      insert into auth.clients (client_id, client_name, secret_hashes, authentication_methods, grant_types, scopes,
        client_settings, token_settings, registered_at)
      values (${id}, ${id}, '{}', '{}', '{}', '{}', '{}', ${JSON.stringify({ refreshGraceSeconds: grace })}::text::jsonb,
        now())`);
  }
  interface Authorization {
    /** Seconds until the later of its tokens expires. */
    expires?: number;
    identityId?: string;
    clientId?: string;
  }
  async function authorization({ expires = 100, identityId = "u", clientId = "mobile-app" }: Authorization) {
    const id = randomUUID();
    await database.db.execute(sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, client_generation,
        identity_generation, expires_at, access_expires_at, expiry_day, family_hash, refresh_hash)
      select ${id}::uuid, ${clientId}, ${identityId}, 'auth', '{}', now(),
        (select generation from auth.clients where client_id = ${clientId}),
        coalesce((select max(generation) from auth.identity_endings where identity_id = ${identityId}), 0),
        ${at(expires)}, ${at(expires)}, ((${at(expires)}) at time zone 'UTC')::date, '\\x00', '\\x00'`);
    return id;
  }
  /** What is kept for a retry of a refresh. @param seen seconds since its commit was seen to succeed */
  async function replaced(authorizationId: string, seen: number | undefined) {
    const batch = randomUUID();
    await database.db.execute(sql`
      insert into auth.replaced_tokens values (${authorizationId}::uuid, '\\x00', '\\x00', ${batch}::uuid)`);
    if (seen === undefined) return;
    await database.db.execute(sql`insert into auth.rotation_batches values (${batch}::uuid, ${at(-seen)})`);
  }
  async function ids(column: string, table: string): Promise<string[]> {
    const found = await rows<{ id: string }>(
      database.db,
      sql`select ${sql.identifier(column)}::text as id from auth.${sql.identifier(table)} order by 1`,
    );
    return found.map(({ id }) => id);
  }
  const deleteIdentity = (id: string) =>
    database.db.transaction((tx) => endIdentity(tx, id, "IDENTITY_DELETED"));
  async function reasons(): Promise<Record<string, string | null>> {
    const found = await rows<{ id: string; reason: string | null }>(
      database.db,
      sql`select id::text, revocation_reason as reason from auth.authorizations`,
    );
    return Object.fromEntries(found.map(({ id, reason }) => [id, reason]));
  }

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
    await endAuthorization(database.db, id, "CLIENT");
    await round();
    expect(await reasons()).toEqual({ [id]: "CLIENT" });
  });

  test("reports how many rows of which kind it has removed, and that nothing is left", async () => {
    const kinds = janitorKinds.filter((kind) => kind !== "ended_authorizations");
    await database.db.execute(sql`
      insert into auth.revoked_access_tokens (jti, expires_at)
      select gen_random_uuid() || '.' || n, ${at(-2 * day)} from generate_series(1, 2500) as n`);
    await database.db.execute(
      sql`insert into auth.attempts (key, points, expire) values ('k', 1, ${at(-1)})`,
    );
    const record = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp(database.db, { observer: record.observer });
    const nothing = Object.fromEntries(kinds.map((kind) => [kind, 0]));
    expect(record.rows).toEqual({ ...nothing, revoked_access_tokens: 2500, attempts: 1 });
    expect(record.caughtUp).toEqual(new Set(kinds));
    expect(record.rounds()).toBe(1);

    const stopped = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp(database.db, { observer: stopped.observer, stopping: AbortSignal.abort() });
    expect([stopped.rows, stopped.caughtUp, stopped.rounds()]).toEqual([{}, new Set(), 0]);
  });

  test("a revoked access token and a redeemed proof are kept until a day after they would have expired", async () => {
    const strangerId = randomUUID();
    for (const [name, seconds] of [
      ["kept", -day + 60],
      ["gone", -day - 60],
    ] as const) {
      await database.db.execute(sql`
        insert into auth.revoked_access_tokens (jti, expires_at)
        values (${`${strangerId}.${name}`}, ${at(seconds)})`);
      await database.db.execute(sql`
        insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values (${name}::text::bytea, ${at(seconds)})`);
    }
    await round();
    expect(await ids("jti", "revoked_access_tokens")).toEqual([`${strangerId}.kept`]);
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toEqual(["\\x6b657074"]);
  });

  test("a revoked access token is kept while its authorization has a row, however far ahead the clock is", async () => {
    const [live, ended] = [await authorization({}), await authorization({ expires: -day })];
    for (const id of [live, ended])
      await database.db.execute(sql`
        insert into auth.revoked_access_tokens (jti, expires_at) values (${`${id}.x`}, ${at(-400 * day)})`);
    await round();
    expect(await ids("jti", "revoked_access_tokens")).toEqual([`${live}.x`]);
    // Rounds before the authorization's end need not look at it again.
    const due = sql`select from auth.revoked_access_tokens where expires_at < clock_timestamp() - interval '1 hour'`;
    expect(await rows(database.db, due)).toEqual([]);
  });

  test("a redeemed proof is kept where the clock was just set ahead", async () => {
    await database.db.execute(sql`
      insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values ('proof', ${at(-2 * day)})`);
    // The last beat, before the clock was set.
    await database.db.execute(sql`insert into auth.database_pulse values (1, ${at(-3 * day)}, interval '0')`);
    await round();
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toHaveLength(1);
    await database.db.execute(sql`delete from auth.database_pulse`);
    await round();
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toEqual([]);
  });

  test("no authorization and no client ends where the clock was just set a month ahead", async () => {
    const id = await authorization({ expires: -2 * day });
    await client("gone");
    await database.db.execute(
      sql`update auth.clients set disabled_at = ${at(-10 * day)} where client_id = 'gone'`,
    );
    await authorization({ clientId: "gone", expires: 100 * day });
    const generation = sql`select generation::int from auth.clients where client_id = 'gone'`;
    const before = await rows(database.db, generation);
    // The last beat, before the clock was set.
    await database.db.execute(
      sql`insert into auth.database_pulse values (1, ${at(-30 * day)}, interval '0')`,
    );
    await round();
    expect(await ids("id", "authorizations")).toContain(id);
    expect(await rows(database.db, generation)).toEqual(before);
    await database.db.execute(sql`delete from auth.database_pulse`);
    await round();
    expect(await ids("id", "authorizations")).not.toContain(id);
    expect(await rows(database.db, generation)).not.toEqual(before);
  });

  test("a step that fails keeps none of the others from its work", async () => {
    const id = await authorization({ expires: -2 * day });
    await database.db.execute(sql`
      insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values ('proof', ${at(-2 * day)})`);
    let calls = 0;
    const { db } = database;
    // The first statement is the one that removes authorizations.
    const failing = Object.create(db, {
      execute: {
        value: (statement: SQL) =>
          calls++ === 0 ? Promise.reject(new Error("cut off")) : db.execute(statement),
      },
    });
    await expect(cleanUp(failing)).rejects.toThrow("cut off");
    expect(await ids("proof_hash", "redeemed_otp_proofs")).toEqual([]);
    expect(await ids("id", "authorizations")).toEqual([id]);
    await round();
    expect(await ids("id", "authorizations")).toEqual([]);
  });

  test("counters of attempts go when their window has closed by the database's clock", async () => {
    const counters = createDatabaseCounters(database.db, createKeyOf("a secret of the settings"));
    const rule = { name: "password", failures: 3, windowSeconds: 300 };
    await counters.count({ rule, subject: "somebody" });
    await round();
    expect(await ids("key", "attempts")).toHaveLength(1);
    await database.db.execute(sql`update auth.attempts set expire = now()`);
    await round();
    expect(await ids("key", "attempts")).toEqual([]);
  });

  test("a round goes on until nothing is left, however much there is", async () => {
    // More rows than two statements remove.
    await database.db.execute(sql`
      insert into auth.attempts (key, points, expire)
      select 'expired-' || n, 1, now() from generate_series(1, 2001) as n
      union all select 'kept', 1, now() + interval '1 hour'`);
    await round();
    expect(await ids("key", "attempts")).toEqual(["kept"]);
  });

  test("what is kept for a retry goes when the longest window has closed since the commit was seen", async () => {
    await client("patient", 60);
    const [open, closed, unseen] = [
      await authorization({}),
      await authorization({}),
      await authorization({}),
    ] as const;
    await replaced(open, 55);
    await replaced(closed, 61);
    await replaced(unseen, undefined);
    await round();
    expect(await ids("authorization_id", "replaced_tokens")).toEqual([open, unseen].sort());
    expect(await ids("id", "rotation_batches")).toHaveLength(1);
    expect(await ids("id", "authorizations")).toHaveLength(3);
  });

  test("thousands of replaced tokens go in one round, but for those whose window is open", async () => {
    await database.db.execute(sql`
      insert into auth.replaced_tokens
      select gen_random_uuid(), '\\x00', '\\x00', md5((n / 10)::text)::uuid from generate_series(0, 3999) as n`);
    await database.db.execute(sql`
      insert into auth.rotation_batches
      select md5(n::text)::uuid, ${at(-3600)} + (case when n % 4 = 0 then 3600 else 0 end) * interval '1 second'
      from generate_series(0, 399) as n`);
    const record = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp(database.db, { observer: record.observer });
    expect(record.rows).toMatchObject({ replaced_tokens: 3000, rotation_batches: 300 });
    expect(await ids("authorization_id", "replaced_tokens")).toHaveLength(1000);
    expect(await ids("id", "rotation_batches")).toHaveLength(100);
  });

  test("a sweep marks what ended with its identity, each by the ending that it was, with one event; and nothing else", async () => {
    const [first, second, other] = [
      await authorization({}),
      await authorization({}),
      await authorization({ identityId: "v" }),
    ];
    await replaced(first, 1);
    await database.db.transaction((tx) => endIdentity(tx, "u", "PASSWORD_CHANGED"));
    const between = await authorization({});
    await deleteIdentity("u");
    const again = await authorization({});
    await Promise.all([sweep(), sweep()]);
    await sweep();
    expect(await reasons()).toEqual({
      [first]: "PASSWORD_CHANGED",
      [second]: "PASSWORD_CHANGED",
      [between]: "IDENTITY_DELETED",
      [again]: null,
      [other]: null,
    });
    expect(await ids("authorization_id", "replaced_tokens")).toEqual([]);
    const events = await rows<{ id: string; reason: string }>(
      database.db,
      sql`select data ->> 'authorizationId' as id, data ->> 'reason' as reason from auth.outbox`,
    );
    expect(events.sort((a, b) => (a.id < b.id ? -1 : 1))).toEqual(
      [
        { id: first, reason: "REVOCATION_REASON_PASSWORD_CHANGED" },
        { id: second, reason: "REVOCATION_REASON_PASSWORD_CHANGED" },
        { id: between, reason: "REVOCATION_REASON_IDENTITY_DELETED" },
      ].sort((a, b) => (a.id < b.id ? -1 : 1)),
    );
  });

  test("an ending goes a day after its sweep, and not while an authorization needs it", async () => {
    await authorization({});
    await deleteIdentity("u");
    await round();
    await sweep();
    await round();
    expect(await ids("identity_id", "identity_endings")).toEqual(["u"]);
    await database.db.execute(sql`update auth.identity_endings set swept_at = ${at(-day - 60)}`);
    // As by a statement that began before the ending and was committed after the sweep.
    await database.db.execute(
      sql`update auth.authorizations set revoked_at = null, revocation_reason = null`,
    );
    await round();
    expect(await ids("identity_id", "identity_endings")).toEqual(["u"]);
    await sweep();
    expect(Object.values(await reasons())).toEqual(["IDENTITY_DELETED"]);
    await database.db.execute(sql`update auth.identity_endings set swept_at = ${at(-day - 60)}`);
    await round();
    expect(await ids("identity_id", "identity_endings")).toEqual([]);
    // What is created now is of no generation that was there before.
    const late = await authorization({});
    await deleteIdentity("u");
    await sweep();
    expect(await reasons()).toMatchObject({ [late]: "IDENTITY_DELETED" });
  });

  test("a client that is not listed for a week loses its authorizations for good, and no sooner", async () => {
    await client("former");
    const [id, other] = [await authorization({ clientId: "former" }), await authorization({})];
    const disabledSince = (seconds: number) =>
      database.db.execute(
        sql`update auth.clients set disabled_at = ${at(-seconds)} where client_id = 'former'`,
      );
    await disabledSince(7 * day - 60);
    await round();
    await sweep();
    expect(await reasons()).toEqual({ [id]: null, [other]: null });
    await disabledSince(7 * day + 60);
    for (let turn = 0; turn < 3; turn += 1) {
      await round();
      await sweep();
    }
    expect(await reasons()).toEqual({ [id]: "CLIENT_DISABLED", [other]: null });
    expect(await rows(database.db, sql`select 1 from auth.clients where generation = 1`)).toHaveLength(1);
  });

  test("rounds and sweeps until it is stopped, and goes on after one that failed", async () => {
    const log = captureLog();
    const id = await authorization({ expires: -day });
    await authorization({});
    const { db } = database;
    let failures = 0;
    const failing: typeof db = Object.create(db, {
      execute: {
        value(...parameters: Parameters<typeof db.execute>) {
          failures += 1;
          if (failures <= 2) throw new Error("not now");
          return db.execute(...parameters);
        },
      },
    });
    const janitor = startJanitor({ db: failing, logger: log.logger, intervalSeconds: 0.01 });
    await deleteIdentity("u");
    await waitFor(async () => expect(Object.values(await reasons())).toEqual(["IDENTITY_DELETED"]));
    await waitFor(async () => expect(await ids("id", "authorizations")).not.toContain(id));
    await janitor.stop();
    expect(log.text()).toContain("The janitor could not finish its round; it tries again");
    const statements = failures;
    await round();
    expect(failures).toBe(statements);
  });

  test.runIf(backend === "PostgreSQL")(
    "rounds of several processes at once, beside deletions of identities, make nothing fail",
    async () => {
      const other = await own.open();
      const users = Array.from({ length: 6 }, (_, index) => `user-${index}`);
      for (let turn = 0; turn < 25; turn += 1) {
        // Half of them have expired; each is one of a user's.
        await database.db.execute(sql`
          insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
            client_generation, identity_generation, expires_at, access_expires_at, expiry_day, family_hash, refresh_hash)
          select gen_random_uuid(), 'mobile-app', 'user-' || n % ${users.length}::int, 'auth', '{}', now(), 0, 0,
            expires, expires, expires::date, '\\x00', '\\x00'
          from (select n, to_timestamp(n % 2 * 4e9) as expires from generate_series(1, 600) as n) as made`);
        await Promise.all([
          round(),
          cleanUp(other.db),
          ...users.map(deleteIdentity),
          sweep(),
          sweepAuthorizations(other.db),
        ]);
      }
      await sweep();
      const active = sql`select 1 from auth.authorizations where revoked_at is null`;
      expect(await rows(database.db, active)).toEqual([]);
      const twice = sql`select from auth.outbox group by data ->> 'authorizationId' having count(*) > 1`;
      expect(await rows(database.db, twice)).toEqual([]);
    },
  );
});
