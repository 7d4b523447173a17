/** The janitor: it removes expired rows, keeps all others, and does not disturb concurrent requests. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { cleanUp, startJanitor } from "../../src/auth/janitor.ts";
import { createAttemptCounters } from "../../src/auth/limits/attempt-counters.ts";
import { authMigrations } from "../../src/auth/service.ts";
import { endAuthorizations } from "../../src/auth/tokens/end-authorizations.ts";
import type { OpenDatabase } from "../../src/platform/database/database.ts";
import { type AuthApi, authApi, basic, internal, mobileApp, type TokenPair } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore, rowCounts } from "../support/auth-store.ts";
import { captureLog } from "../support/captured-log.ts";
import { type MovableClock, movableClock } from "../support/movable-clock.ts";
import { otpVerifier } from "../support/otp.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../support/service-database.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const minute = 60;
/** Seconds that revoked tokens and redeemed proofs are kept after they have expired. */
const margin = 24 * 60 * minute;

describe.each(backends)("one round of the janitor on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let clock: MovableClock;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    await database.migrate();
  });
  beforeEach(async () => {
    clock = movableClock();
    for (const table of ["authorizations", "revoked_access_tokens", "redeemed_otp_proofs", "attempts"]) {
      await database.db.execute(sql`delete from ${sql.identifier("auth")}.${sql.identifier(table)}`);
    }
  });

  const round = () => cleanUp({ db: database.db, clock, longestGrace: 30 });
  function at(seconds: number): string {
    return new Date(clock.now() + seconds * 1000).toISOString();
  }
  interface Authorization {
    refresh?: number;
    access?: number;
    superseded?: object[];
    identityId?: string;
  }
  /** An authorization whose tokens expire in so many seconds. */
  async function authorization({
    refresh = 100,
    access = 100,
    superseded = [],
    identityId = "u",
  }: Authorization) {
    const id = randomUUID();
    await database.db.execute(sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, expires_at,
        access_expires_at, family_hash, refresh_hash, superseded)
      values (${id}::uuid, 'mobile-app', ${identityId}, 'auth', '{}', ${at(0)}::timestamptz,
        ${at(refresh)}::timestamptz, ${at(access)}::timestamptz, '\\x00', '\\x00',
        ${JSON.stringify(superseded)}::text::jsonb)`);
    return id;
  }
  async function ids(column: string, table: string): Promise<string[]> {
    const found = await rows<{ id: string }>(
      database.db,
      sql`select ${sql.identifier(column)}::text as id from auth.${sql.identifier(table)} order by 1`,
    );
    return found.map(({ id }) => id);
  }

  test("an authorization goes when both its tokens have expired, and no sooner", async () => {
    const [both, refresh, access, neither] = [
      await authorization({ refresh: -1, access: -1 }),
      await authorization({ refresh: -1, access: 60 }),
      await authorization({ refresh: 60, access: -1 }),
      await authorization({}),
    ];
    await round();
    expect(await ids("id", "authorizations")).toEqual([refresh, access, neither].sort());
    expect(both).toBeDefined();
    clock.move(61);
    await round();
    expect(await ids("id", "authorizations")).toEqual([neither]);
  });

  test("an authorization that has ended stays as long as one that has not", async () => {
    const id = await authorization({ refresh: 60, access: 60 });
    await endAuthorizations(database.db, { id }, "CLIENT", new Date(clock.now()));
    await round();
    expect(await ids("id", "authorizations")).toEqual([id]);
    clock.move(61);
    await round();
    expect(await ids("id", "authorizations")).toEqual([]);
  });

  test("a revoked access token and a redeemed proof are kept until well after they would have expired", async () => {
    await database.db.execute(sql`
      insert into auth.revoked_access_tokens (jti, expires_at) values ('a', ${at(60)}::timestamptz)`);
    await database.db.execute(sql`
      insert into auth.redeemed_otp_proofs (proof_hash, expires_at) values ('\\x61', ${at(60)}::timestamptz)`);
    const left = async () => [
      await ids("jti", "revoked_access_tokens"),
      await ids("proof_hash", "redeemed_otp_proofs"),
    ];
    for (const seconds of [0, 61, margin - 2]) {
      clock.move(seconds);
      await round();
      expect(await left()).toEqual([["a"], ["\\x61"]]);
    }
    clock.move(2);
    await round();
    expect(await left()).toEqual([[], []]);
  });

  test("counters of attempts go when their window has closed by the database's clock", async () => {
    const counters = createAttemptCounters(database.db, "a secret of the settings");
    const rule = { name: "password", failures: 3, windowSeconds: 300 };
    await counters.begin({ rule, subject: "somebody" });
    // A process whose clock is ahead must not forget guesses early.
    clock.move(3600);
    await round();
    expect(await ids("key", "attempts")).toHaveLength(1);
    await database.db.execute(sql`update auth.attempts set expire = now()`);
    await round();
    expect(await ids("key", "attempts")).toEqual([]);
  });

  test("a round goes on until nothing is left, however much there is", async () => {
    // One more row than a statement removes.
    await database.db.execute(sql`
      insert into auth.attempts (key, points, expire)
      select 'expired-' || n, 1, now() from generate_series(1, 10001) as n
      union all select 'kept', 1, now() + interval '1 hour'`);
    await round();
    expect(await ids("key", "attempts")).toEqual(["kept"]);
  });

  test("successors are forgotten when the longest window has closed, and the authorization stays", async () => {
    const entry = (seconds: number) => ({ hash: "h", at: clock.now() + seconds * 1000, sealed: "s" });
    const open = await authorization({ superseded: [entry(-29), entry(-31)] });
    const closed = await authorization({ superseded: [entry(-31), entry(-50)] });
    await round();
    const kept = await rows<{ id: string; count: number }>(
      database.db,
      sql`select id::text, jsonb_array_length(superseded) as count from auth.authorizations`,
    );
    expect(new Map(kept.map(({ id, count }) => [id, Number(count)]))).toEqual(
      new Map([
        [open, 2],
        [closed, 0],
      ]),
    );
    clock.move(2);
    await round();
    expect(
      await rows(database.db, sql`select 1 from auth.authorizations where superseded = '[]'`),
    ).toHaveLength(2);
  });

  test("rounds until it is stopped, and goes on after one that failed", async () => {
    const log = captureLog();
    let failures = 0;
    const failing = {
      now() {
        failures += 1;
        if (failures === 1) throw new Error("no time");
        return clock.now();
      },
    };
    const id = await authorization({ refresh: -1, access: -1 });
    const dependencies = { db: database.db, clock: failing, longestGrace: 30, logger: log.logger };
    const janitor = startJanitor({ ...dependencies, intervalSeconds: 0.01 });
    await waitFor(async () => expect(await ids("id", "authorizations")).not.toContain(id));
    await janitor.stop();
    expect(log.text()).toContain("The janitor could not finish its round; it tries again");
    const rounds = failures;
    await round();
    expect(failures).toBe(rounds);
  });

  test.runIf(backend === "PostgreSQL")(
    "rounds of several processes at once, beside deletions of identities, make nothing fail",
    async () => {
      const other = await own.open();
      const users = Array.from({ length: 6 }, (_, index) => `user-${index}`);
      const superseded = JSON.stringify([{ hash: "h", at: clock.now() - 31_000, sealed: "s" }]);
      for (let turn = 0; turn < 25; turn += 1) {
        // Half of them have expired; each is one of a user's, and all are one client's.
        await database.db.execute(sql`
          insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at, expires_at,
            access_expires_at, family_hash, refresh_hash, superseded)
          select gen_random_uuid(), 'mobile-app', 'user-' || n % ${users.length}::int, 'auth', '{}', now(), expires,
            expires, '\\x00', '\\x00', ${superseded}::text::jsonb
          from (select n, to_timestamp(n % 2 * 4e9) as expires from generate_series(1, 600) as n) as made`);
        const now = new Date(clock.now());
        await Promise.all([
          round(),
          cleanUp({ db: other.db, clock, longestGrace: 30 }),
          ...users.map((identityId) =>
            endAuthorizations(database.db, { identityId }, "IDENTITY_DELETED", now),
          ),
          endAuthorizations(other.db, { clientId: "mobile-app" }, "CLIENT_DISABLED", now),
        ]);
      }
      const active = sql`select 1 from auth.authorizations where revoked_at is null`;
      expect(await rows(database.db, active)).toEqual([]);
    },
  );
});

describe.each(backends)("the janitor of a running server on %s", (backend) => {
  let store: AuthStore;
  let clock: MovableClock;
  let server: AuthServer;
  let api: AuthApi;
  let looks = 0;
  const brief = basic("brief", "brief-secret");
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    clock = movableClock();
    const clients = withClients({
      clientId: "brief",
      clientSecret: "brief-secret",
      grantTypes: ["auth", "refresh_token"],
      tokenSettings: { accessTokenSeconds: 60, refreshTokenSeconds: 120, refreshGraceSeconds: 10 },
    });
    const env = { ...store.env, ...clients, JANITOR_INTERVAL_SECONDS: "1" };
    const counted = {
      now() {
        looks += 1;
        return clock.now();
      },
    };
    server = await startAuthServer(backend, { env, clock: counted });
    api = authApi(server.base);
  });

  /** Waits for a whole round: each reads the clock when it begins, and nothing else reads it meanwhile. */
  async function aRound(): Promise<void> {
    const before = looks;
    await waitFor(() => expect(looks).toBeGreaterThanOrEqual(before + 2));
  }

  test("after a while in which the clock was an hour ahead, what was revoked or redeemed still is", async () => {
    const { id, phone } = await api.newIdentity();
    const { access_token } = await api.newPair(id);
    await api.call("revokeToken", { as: internal, form: { token: access_token } });
    const proof = await otpVerifier(server.origin).prove(phone);
    const form = { grant_type: "phone_otp_token", phone, otp_verification_token: proof };
    expect((await api.token(form)).status).toBe(200);
    clock.move(3600);
    await aRound();
    clock.move(-3600);
    expect(await api.introspect(access_token)).toEqual({ active: false });
    expect(await api.token(form)).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
    await api.call("deleteIdentity", { as: internal, path: { id } });
  });

  test("it removes what has expired and leaves alone what has not", async () => {
    const { id, phone } = await api.newIdentity();
    const gone = await api.newPair(id, brief);
    await api.call("revokeToken", { as: internal, form: { token: gone.access_token } });
    const proof = await otpVerifier(server.origin).prove(phone);
    const form = { grant_type: "phone_otp_token", phone, otp_verification_token: proof };
    const kept = (await api.token(form)).body as TokenPair;
    const first = await api.newPair(id, mobileApp);
    const second = (await api.refresh(first.refresh_token)).body as TokenPair;

    clock.move(121);
    for (const { access_token } of [kept, second]) {
      expect(await api.introspect(access_token)).toMatchObject({ active: true });
    }
    clock.move(margin + 15 * minute);
    await aRound();
    await server.stop();
    const counts = await store.read(rowCounts);
    expect(counts).toMatchObject({
      "auth.authorizations": 4,
      "auth.revoked_access_tokens": 0,
      "auth.redeemed_otp_proofs": 0,
      "auth.identities": 1,
    });
  });
});
