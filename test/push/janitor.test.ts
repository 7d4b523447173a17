/** The janitor: what has expired or is too old goes, what has not stays, and nobody is disturbed by it. */
import { setTimeout as delay } from "node:timers/promises";
import { type SQL, sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { Database, OpenDatabase } from "../../src/platform/database/database.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { createDevices } from "../../src/push/devices/devices.ts";
import { createHistory } from "../../src/push/history/history.ts";
import { cleanUp, janitorKinds, startJanitor } from "../../src/push/janitor.ts";
import { captureLog } from "../support/captured-log.ts";
import { historyEntries, insertEntries } from "../support/history-rows.ts";
import { janitorRecord } from "../support/janitor-record.ts";
import { type MovableClock, movableClock } from "../support/movable-clock.ts";
import { insertNotification, type NotificationRow } from "../support/push-rows.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../support/service-database.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const day = 24 * 60 * 60;
const historyRetentionDays = 180;
const tables = [
  "devices",
  "history_blocks",
  "history_views",
  "history_users",
  "notifications",
  "delivery_chunks",
  "idempotency_keys",
  "inbox",
  "outbox",
] as const;

describe.each(backends)("the janitor on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let db: Database;
  let clock: MovableClock;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, pushMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    db = database.db;
  });
  beforeEach(async () => {
    clock = movableClock();
    for (const table of tables) await db.execute(sql`delete from push.${sql.identifier(table)}`);
  });

  const round = (of: Database = db) => cleanUp({ db: of, historyRetentionDays });
  const at = (seconds: number) => sql`${new Date(clock.now() + seconds * 1000).toISOString()}::timestamptz`;
  /** @param table one of the tables, or other rows */
  async function column(name: string, table: (typeof tables)[number] | SQL): Promise<string[]> {
    const from = typeof table === "string" ? sql`push.${sql.identifier(table)}` : table;
    const found = await rows<{ value: string }>(
      db,
      sql`select ${sql.identifier(name)}::text as value from ${from} order by 1`,
    );
    return found.map(({ value }) => value);
  }
  async function count(table: (typeof tables)[number]): Promise<number> {
    const [found] = await rows<{ n: number }>(
      db,
      sql`select count(*)::int as n from push.${sql.identifier(table)}`,
    );
    return Number(found?.n);
  }
  async function device(token: string, expiresIn: number): Promise<void> {
    await db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      values ('anna', 'fcm', ${token}, sha256(${token}::text::bytea), 0, ${at(expiresIn)}, now(), now())`);
  }
  /** A notification accepted so many seconds ago. */
  const notification = (age: number, row: Omit<NotificationRow, "acceptedAt"> = {}) =>
    insertNotification(db, { acceptedAt: clock.now() - age * 1000, ...row });

  test("a device goes when it has expired, with an event, and not sooner", async () => {
    await device("expired", -1);
    await device("expires now", 0);
    await device("alive", 60);
    await round();
    expect(await column("token", "devices")).toEqual(["alive"]);
    const events = await rows<{ type: string; reason: string }>(
      db,
      sql`select type, data ->> 'reason' as reason from push.outbox`,
    );
    const expired = { type: "push.token.removed.v1", reason: "REMOVAL_REASON_EXPIRED" };
    expect(events).toEqual([expired, expired]);
  });

  test("history goes when it is older than it is to be kept, viewed or not, and not sooner", async () => {
    const limit = historyRetentionDays * day;
    const old = await notification(limit + 1, {
      state: "PAUSED",
      viewedBy: { anna: true, boris: false },
    });
    const kept = await notification(limit - 60, { viewedBy: { anna: true } });
    const young = await notification(1, { viewedBy: { anna: false } });
    await round();
    expect(await column("notification_id", historyEntries)).toEqual([kept, young].sort());
    expect(await column("notification_id", "history_views")).toEqual([kept]);
    // It is not finished.
    expect(await column("id", "notifications")).toContain(old);
  });

  test("a user goes when the last entry does, and nothing of the user remains; who has another stays as known", async () => {
    const limit = historyRetentionDays * day;
    await notification(limit + 1, { viewedBy: { anna: true, boris: true, clara: false } });
    const kept = await notification(1, { viewedBy: { boris: true } });
    await round();
    expect(await column("user_id", "history_users")).toEqual(["boris"]);
    expect(await column("viewed", historyEntries)).toEqual(["true"]);
    const again = await notification(0, { viewedBy: { anna: false, boris: false } });
    const page = (user: string) =>
      createHistory({ db }).page(user, { page: 0, size: 9, sort: ["id"] }, false);
    expect((await page("anna")).content).toMatchObject([{ id: again, viewed: false }]);
    const ofBoris = (await page("boris")).content.map(({ id, viewed }) => [id, viewed]);
    expect(new Map(ofBoris as [string, boolean][])).toEqual(
      new Map([
        [kept, true],
        [again, false],
      ]),
    );
  });

  test("of several blocks, those users go who have no entry left, and none of another block", async () => {
    const limit = historyRetentionDays * day;
    const everybody = sql`select 'user-' || n from generate_series(1, 700) n`;
    await insertEntries(db, await notification(1), everybody);
    const old = await notification(limit + 1);
    await insertEntries(db, old, sql`select 'user-' || n from generate_series(600, 800) n`);
    await round();
    expect(await column("user_id", "history_users")).toEqual(
      Array.from({ length: 700 }, (_, index) => `user-${index + 1}`).sort(),
    );
    expect(await count("history_blocks")).toBe(2);
    expect(await column("notification_id", historyEntries)).toHaveLength(700);
  });

  test("a user stays who has an entry among many of others, and one who has none of them goes", async () => {
    const limit = historyRetentionDays * day;
    await notification(limit + 1, { viewedBy: { anna: false, boris: false, clara: true } });
    for (let age = 80; age < 200; age += 1) await notification(limit - age, { viewedBy: { boris: false } });
    await notification(1, { viewedBy: { anna: false } });
    await round();
    expect(await column("user_id", "history_users")).toEqual(["anna", "boris"]);
  });

  // Elsewhere the service does not own the tables, and cannot rename one.
  test.runIf(backend === "PGlite")(
    "what cannot be removed keeps nothing else from being removed, and is reported",
    async () => {
      await notification(historyRetentionDays * day + 1, { viewedBy: { anna: true } });
      await db.execute(sql`
      insert into push.idempotency_keys values ('\\x01', '\\x', gen_random_uuid(), ${at(-1)})`);
      const record = janitorRecord();
      const renamed = (from: string, to: string) =>
        db.execute(sql`alter table push.${sql.identifier(from)} rename to ${sql.identifier(to)}`);
      await renamed("history_users", "elsewhere");
      const failed = cleanUp({ db, historyRetentionDays, observer: record.observer });
      await expect(failed.finally(() => renamed("elsewhere", "history_users"))).rejects.toThrow();
      expect(await count("idempotency_keys")).toBe(0);
      expect(record.rounds()).toBe(0);
      // The entries tell which users are still to go.
      expect(await count("history_blocks")).toBe(1);
      await round();
      expect([await count("history_blocks"), await count("history_users")]).toEqual([0, 0]);
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "planning is waited for only where a user goes, and never to remove entries",
    async () => {
      const other = await own.open();
      await notification(historyRetentionDays * day + 1, { viewedBy: { anna: true, boris: false } });
      await notification(1, { viewedBy: { anna: false, boris: false } });
      await other.db.transaction(async (tx) => {
        await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
        await round();
      });
      expect(await count("history_blocks")).toBe(1);
      expect(await column("user_id", "history_users")).toEqual(["anna", "boris"]);
    },
  );

  test("a finished notification goes with its chunks when it is as old, dead letters included", async () => {
    const limit = historyRetentionDays * day;
    await notification(limit + 1, { chunks: ["DONE", "DONE", "DEAD"], viewedBy: { anna: false } });
    await notification(limit + 2, { state: "CANCELLED" });
    const unfinished = await notification(limit + 3, { state: "SENDING" });
    const replayed = await notification(limit + 4, { chunks: ["DONE", "PENDING"] });
    const held = await notification(limit + 5, { state: "PAUSED", chunks: ["SENDING"] });
    const young = await notification(limit - 1, { chunks: ["DONE", "DEAD"] });
    await round();
    expect(await column("id", "notifications")).toEqual([unfinished, replayed, held, young].sort());
    expect(await column("state", "delivery_chunks")).toEqual(["DEAD", "DONE", "DONE", "PENDING", "SENDING"]);
  });

  test("idempotency keys go when they expire", async () => {
    await db.execute(sql`
      insert into push.idempotency_keys values
        ('\\x01', '\\x', gen_random_uuid(), ${at(0)}), ('\\x02', '\\x', gen_random_uuid(), ${at(60)})`);
    await round();
    expect(await column("key_hash", "idempotency_keys")).toEqual(["\\x02"]);
  });

  test("a round goes on until nothing is left, however much there is", async () => {
    const limit = historyRetentionDays * day;
    await db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      select 'anna', 'fcm', n::text, sha256(n::text::bytea), 0, ${at(-1)}, now(), now() from generate_series(1, 5001) n`);
    const id = await notification(limit + 1, {});
    await insertEntries(db, id, sql`select 'user-' || n from generate_series(1, 3000) n`);
    await db.execute(sql`
      insert into push.history_blocks
      select max(user_block), (left(${id}, 24) || lpad(n::text, 12, '0'))::uuid, max(recipient_bits::text)::bit(512)
      from push.history_blocks, generate_series(1, 400) n group by n`);
    const blocks = await count("history_blocks");
    await db.execute(sql`
      insert into push.history_views select n, ${id}::uuid, now() from generate_series(1, 5001) n`);
    await db.execute(sql`
      insert into push.delivery_chunks (notification_id, provider, utc_offset, state, device_ids, planned, sent, failed,
        dropped, dead, attempt, retries, updated_at)
      select ${id}::uuid, 'fcm', 0, 'DONE', '{}', 1, 1, 0, 0, 0, 1, 0, now() from generate_series(1, 5001)`);
    await db.execute(sql`
      insert into push.idempotency_keys
      select sha256(n::text::bytea), '\\x', gen_random_uuid(), ${at(-1)} from generate_series(1, 5001) n`);
    for (let turn = 0; turn < 101; turn += 1) await notification(limit + 2, {});
    const record = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp({ db, historyRetentionDays, observer: record.observer });
    for (const table of tables.slice(0, -1) as (typeof tables)[number][])
      expect(await count(table), table).toBe(0);
    expect(await count("outbox")).toBe(5001);
    expect(record.rows).toEqual({
      devices: 5001,
      history_blocks: blocks,
      history_users: 3000,
      history_views: 5001,
      delivery_chunks: 5001,
      notifications: 102,
      idempotency_keys: 5001,
      inbox: 0,
      kept_events: 0,
    });
    expect(record.caughtUp).toEqual(new Set(janitorKinds));
    expect(record.rounds()).toBe(1);
  });

  test("when it is time to stop it ends after the batch in hand, and the next round does the rest", async () => {
    await device("expired", -1);
    const stopped = new AbortController();
    stopped.abort();
    const record = janitorRecord();
    await cleanUp({ db, historyRetentionDays, observer: record.observer }, stopped.signal);
    expect(await count("devices")).toBe(1);
    expect(record.caughtUp).toEqual(new Set());
    expect(record.rounds()).toBe(0);
    await round();
    expect(await count("devices")).toBe(0);
  });

  test("rounds until it is stopped, and goes on after one that failed", async () => {
    const log = captureLog();
    await device("expired", -1);
    vi.spyOn(db, "transaction").mockRejectedValueOnce(new Error("no database"));
    const janitor = startJanitor({ db, historyRetentionDays, logger: log.logger, intervalSeconds: 0.01 });
    const complaint = "The janitor could not finish its round; it will try again";
    await waitFor(() => expect(log.text()).toContain(complaint));
    await waitFor(async () => expect(await count("devices")).toBe(0));
    await janitor.stop();
    vi.restoreAllMocks();
    await device("expired later", -1);
    await delay(50);
    expect(await count("devices")).toBe(1);
  });

  test.runIf(backend === "PostgreSQL")(
    "a machine whose clock is wrong removes nothing that is live",
    async () => {
      await device("alive", 60);
      await notification(1, { viewedBy: { anna: false } });
      const wrong = vi.spyOn(Date, "now").mockReturnValue(Date.now() + 365 * day * 1000);
      await round().finally(() => wrong.mockRestore());
      expect([await count("devices"), await count("history_blocks")]).toEqual([1, 1]);
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "while another process is at it, nothing is done twice or waited for",
    async () => {
      const other = await own.open();
      await device("expired", -1);
      await other.db.transaction(async (tx) => {
        await tx.execute(sql`select pg_advisory_xact_lock(hashtext('push.janitor'))`);
        await round();
        expect(await count("devices")).toBe(1);
      });
      await round();
      expect(await count("devices")).toBe(0);
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "a user whose last entry goes while a step of planning gives another one keeps the number",
    async () => {
      const other = await own.open();
      await notification(historyRetentionDays * day + 1, { viewedBy: { anna: false } });
      const young = await notification(1);
      let cleaned: Promise<void> | undefined;
      await other.db.transaction(async (tx) => {
        await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
        await insertEntries(tx, young, sql`values ('anna')`);
        cleaned = round();
        const waiting = sql`select 1 from pg_locks where locktype = 'advisory' and not granted
          and database = (select oid from pg_database where datname = current_database())`;
        await expect.poll(async () => (await rows(tx, waiting)).length).toBe(1);
      });
      await cleaned;
      expect(await column("notification_id", historyEntries)).toEqual([young]);
    },
  );

  test.runIf(backend === "PostgreSQL")("what somebody is working on is left for the next round", async () => {
    const other = await own.open();
    const limit = historyRetentionDays * day;
    const id = await notification(limit + 1, { chunks: ["DEAD"], viewedBy: { anna: false } });
    await device("expired", -1);
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select 1 from push.history_blocks for update`);
      await tx.execute(sql`select 1 from push.devices for update`);
      await round();
      // As an entry of it is left.
      expect(await column("id", "notifications")).toEqual([id]);
      expect([await count("history_blocks"), await count("devices")]).toEqual([1, 1]);
    });
    await other.db.transaction(async (tx) => {
      await tx.execute(sql`select 1 from push.notifications for update`);
      await round();
      const left = ["history_blocks", "delivery_chunks", "notifications"] as const;
      expect(await Promise.all(left.map(count))).toEqual([0, 1, 1]);
    });
    await round();
    expect([await count("delivery_chunks"), await count("notifications")]).toEqual([0, 0]);
  });

  test("the id of an event goes once the event cannot come again, and not sooner", async () => {
    const received = async (age: number) =>
      db.execute(
        sql`insert into push.inbox values (gen_random_uuid(), now() - ${age}::int * interval '1 second')`,
      );
    await received(8 * day + 1);
    await received(8 * day - 60);
    await round();
    expect(await count("inbox")).toBe(1);
    const roundWith = (inboxRetentionDays: () => Promise<number>) =>
      cleanUp({ db, historyRetentionDays, inboxRetentionDays });
    await received(1_000 * day);
    await roundWith(() => Promise.reject(new Error("the broker is away")));
    await roundWith(async () => Number.POSITIVE_INFINITY);
    expect(await count("inbox")).toBe(2);
    await roundWith(async () => 7);
    expect(await count("inbox")).toBe(0);
  });

  test.runIf(backend === "PostgreSQL")(
    "rounds of several processes beside renewals, removals and readers make nothing fail, and no live device goes",
    async () => {
      const other = await own.open();
      const providers = new Map([["outbox" as const, { tokenProblem: () => undefined }]]);
      const devices = createDevices({ db, clock, providers, defaultProvider: "outbox", maxPerUser: 20 });
      const history = createHistory({ db });
      const limit = historyRetentionDays * day;
      const newest = { page: 0, size: 100, sort: [] };
      for (let turn = 0; turn < 15; turn += 1) {
        for (const token of ["a", "b", "c", "d"]) await device(`${token}${turn}`, -1);
        for (let n = 0; n < 5; n += 1)
          await notification(limit + n, { viewedBy: { anna: false, boris: false } });
        const expiration = new Date(clock.now() + 60_000);
        await Promise.all([
          round(),
          round(other.db),
          history.page("anna", newest, true),
          devices.save("anna", { token: `a${turn}`, expiration, utcOffset: undefined }),
          devices.save("boris", { token: `b${turn}`, expiration, utcOffset: undefined }),
          devices.remove("anna", `c${turn}`),
          history.page("anna", { ...newest, sort: ["id,asc"] }, true),
          round(other.db),
        ]);
        await round();
        expect((await column("token", "devices")).filter((token) => token.endsWith(String(turn)))).toEqual(
          expect.arrayContaining([`a${turn}`, `b${turn}`]),
        );
      }
      await round();
      expect(await count("devices")).toBe(30);
      for (const table of ["history_blocks", "history_views", "history_users"] as const) {
        expect(await count(table), table).toBe(0);
      }
    },
  );
});
