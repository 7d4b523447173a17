/** What the janitor marks as ended with its identity or its client, beside concurrent requests. */
import { type SQL, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { cleanUp } from "../../src/auth/janitor.ts";
import { endIdentity, endOrganization } from "../../src/auth/tokens/end-authorizations.ts";
import { sweepAuthorizations } from "../../src/auth/tokens/sweep-authorizations.ts";
import type { Database } from "../../src/platform/database/database.ts";
import { noRequest } from "../../src/platform/messaging/outbox.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { at, day, janitorOn } from "./janitor-fixture.ts";

describe.each(backends)("the janitor on %s", (backend) => {
  const { db, open, round, sweep, client, authorization, replaced, ids, deleteIdentity, reasons } =
    janitorOn(backend);

  test("a sweep marks what ended with its identity, each by the ending that it was, with one event; and nothing else", async () => {
    const [first, second, other] = [
      await authorization({}),
      await authorization({}),
      await authorization({ identityId: "v" }),
    ];
    await replaced(first, 1);
    await db().transaction((tx) => endIdentity(tx, "u", "PASSWORD_CHANGED"));
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
      db(),
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

  test("endings that are repeated make no rows, and end what was granted between them; the kept one lives", async () => {
    const end = (reason: "USER" | "OPERATOR", kept?: string) =>
      db().transaction((tx) => endIdentity(tx, "u", reason, noRequest, kept));
    const kept = await authorization({});
    const ended: string[] = [];
    for (let turn = 0; turn < 4; turn += 1) {
      ended.push(await authorization({}));
      await end("USER", kept);
      await end("USER", kept);
      if (turn % 2 === 0) await sweep();
    }
    expect(await ids("identity_id", "identity_endings")).toEqual(["u"]);
    const last = await authorization({});
    await end("OPERATOR");
    await end("USER");
    await sweep();
    expect(await reasons()).toEqual({
      ...Object.fromEntries(ended.map((id) => [id, "USER"])),
      [kept]: "OPERATOR",
      [last]: "OPERATOR",
    });
  });

  test("a sweep rests after each full batch for as long as the batch took, so that requests have half of the time", async () => {
    await db().execute(sql`
      insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
        client_generation, identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
      select gen_random_uuid(), 'backend', 'u', 'auth', '{}', now(), 0, 0, expires, expires, expires::date,
        '\\x00', '\\x00'
      from (select now() + interval '1 hour' as expires from generate_series(1, 2500)) as made`);
    await deleteIdentity("u");
    const began: number[] = [];
    const ended: { readonly rows: number; readonly at: number }[] = [];
    const watched: Database = Object.assign(Object.create(db()), {
      execute(statement: SQL) {
        began.push(performance.now());
        return db().execute(statement);
      },
    });
    await sweepAuthorizations(watched, undefined, (marked) =>
      ended.push({ rows: marked, at: performance.now() }),
    );
    // The first batch is that of the clients, of which none was disabled, the last one that of organizations.
    expect(ended.map((batch) => batch.rows)).toEqual([0, 1_000, 1_000, 500, 0]);
    for (const full of [1, 2]) {
      const [from = 0, next = 0, end = 0] = [began[full], began[full + 1], ended[full]?.at];
      // A timer may fire early: its delay has no fraction, and its clock steps by milliseconds.
      expect(next - end).toBeGreaterThanOrEqual(end - from - 2);
    }
  });

  test("an ending goes a day after its sweep, and not while an authorization needs it", async () => {
    await authorization({});
    await deleteIdentity("u");
    await round();
    await sweep();
    await round();
    expect(await ids("identity_id", "identity_endings")).toEqual(["u"]);
    await db().execute(sql`update auth.identity_endings set swept_at = ${at(-day - 60)}`);
    // As by a statement that began before the ending and was committed after the sweep.
    await db().execute(sql`update auth.authorizations set revoked_at = null, revocation_reason = null`);
    await round();
    expect(await ids("identity_id", "identity_endings")).toEqual(["u"]);
    await sweep();
    expect(Object.values(await reasons())).toEqual(["IDENTITY_DELETED"]);
    await db().execute(sql`update auth.identity_endings set swept_at = ${at(-day - 60)}`);
    await round();
    expect(await ids("identity_id", "identity_endings")).toEqual([]);
    // What is created now is of no generation that was there before.
    const late = await authorization({});
    await deleteIdentity("u");
    await sweep();
    expect(await reasons()).toMatchObject({ [late]: "IDENTITY_DELETED" });
  });

  test("an authorization that was committed after the sweep of its organization is marked all the same, and no other", async () => {
    await endOrganization(db(), "42", noRequest);
    await sweep();
    const [late, other] = [await authorization({}), await authorization({})];
    const ofGeneration = (generation: number, id: string) =>
      db().execute(sql`update auth.authorizations set organization_id = '42',
        organization_generation = ${generation}::int where id = ${id}::uuid`);
    await ofGeneration(0, late);
    await ofGeneration(1, other);
    await sweep();
    expect(await reasons()).toEqual({ [late]: null, [other]: null });
    await round();
    await sweep();
    expect(await reasons()).toEqual({ [late]: "ORGANIZATION", [other]: null });
  });

  test("a client that is not listed for a week loses its authorizations for good, and no sooner", async () => {
    await client("former");
    const [id, other] = [await authorization({ clientId: "former" }), await authorization({})];
    const disabledSince = (seconds: number) =>
      db().execute(sql`update auth.clients set disabled_at = ${at(-seconds)} where client_id = 'former'`);
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
    expect(await rows(db(), sql`select 1 from auth.clients where generation = 1`)).toHaveLength(1);
  });

  test.runIf(backend === "PostgreSQL")(
    "rounds of several processes at once, beside deletions of identities, make nothing fail",
    async () => {
      const other = await open();
      const users = Array.from({ length: 6 }, (_, index) => `user-${index}`);
      for (let turn = 0; turn < 25; turn += 1) {
        // Half of them have expired; each is one of a user's.
        await db().execute(sql`
          insert into auth.authorizations (id, client_id, identity_id, grant_type, scopes, created_at,
            client_generation, identity_generation, expires_at, refreshed_at, expiry_day, family_hash, refresh_hash)
          select gen_random_uuid(), 'backend', 'user-' || n % ${users.length}::int, 'auth', '{}', now(), 0, 0,
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
      expect(await rows(db(), active)).toEqual([]);
      const twice = sql`select from auth.outbox group by data ->> 'authorizationId' having count(*) > 1`;
      expect(await rows(db(), twice)).toEqual([]);
    },
  );
});
