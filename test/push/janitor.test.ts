/** The janitor: what has expired or is too old goes, and what has not stays. */
import { setTimeout as delay } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { describe, expect, test, vi } from "vitest";
import { createHistory } from "../../src/push/history/history.ts";
import { cleanUp, janitorKinds, startJanitor } from "../../src/push/janitor.ts";
import { captureLog } from "../support/captured-log.ts";
import { historyEntries, insertEntries } from "../support/history-rows.ts";
import { janitorRecord } from "../support/janitor-record.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { waitFor } from "../support/wait-for.ts";
import { day, historyRetentionDays, janitorOn, limit, tables } from "./janitor-fixture.ts";

describe.each(backends)("the janitor on %s", (backend) => {
  const { db, at, round, column, count, device, notification } = janitorOn(backend);

  test("a device goes when it has expired, with an event, and not sooner", async () => {
    await device("expired", -1);
    await device("expires now", 0);
    await device("alive", 60);
    await round();
    expect(await column("token", "devices")).toEqual(["alive"]);
    const events = await rows<{ type: string; reason: string }>(
      db(),
      sql`select type, data ->> 'reason' as reason from push.outbox`,
    );
    const expired = { type: "push.token.removed.v1", reason: "REMOVAL_REASON_EXPIRED" };
    expect(events).toEqual([expired, expired]);
  });

  test("history goes when it is older than it is to be kept, viewed or not, and not sooner", async () => {
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
    await notification(limit + 1, { viewedBy: { anna: true, boris: true, clara: false } });
    const kept = await notification(1, { viewedBy: { boris: true } });
    await round();
    expect(await column("user_id", "history_users")).toEqual(["boris"]);
    expect(await column("viewed", historyEntries)).toEqual(["true"]);
    const again = await notification(0, { viewedBy: { anna: false, boris: false } });
    const page = (user: string) =>
      createHistory({ db: db() }).page(user, { page: 0, size: 9, sort: ["id"] }, false);
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
    const everybody = sql`select 'user-' || n from generate_series(1, 700) n`;
    await insertEntries(db(), await notification(1), everybody);
    const old = await notification(limit + 1);
    await insertEntries(db(), old, sql`select 'user-' || n from generate_series(600, 800) n`);
    await round();
    expect(await column("user_id", "history_users")).toEqual(
      Array.from({ length: 700 }, (_, index) => `user-${index + 1}`).sort(),
    );
    expect(await count("history_blocks")).toBe(2);
    expect(await column("notification_id", historyEntries)).toHaveLength(700);
  });

  test("a user stays who has an entry among many of others, and one who has none of them goes", async () => {
    await notification(limit + 1, { viewedBy: { anna: false, boris: false, clara: true } });
    for (let age = 80; age < 200; age += 1) await notification(limit - age, { viewedBy: { boris: false } });
    await notification(1, { viewedBy: { anna: false } });
    await round();
    expect(await column("user_id", "history_users")).toEqual(["anna", "boris"]);
  });

  test.runIf(backend === "PGlite")(
    "what cannot be removed keeps nothing else from being removed, and is reported",
    async () => {
      await notification(limit + 1, { viewedBy: { anna: true } });
      await db().execute(sql`
      insert into push.idempotency_keys values ('\\x01', '\\x', gen_random_uuid(), ${at(-1)})`);
      const record = janitorRecord();
      const renamed = (from: string, to: string) =>
        db().execute(sql`alter table push.${sql.identifier(from)} rename to ${sql.identifier(to)}`);
      await renamed("history_users", "elsewhere");
      const failed = cleanUp({ db: db(), historyRetentionDays, observer: record.observer });
      await expect(failed.finally(() => renamed("elsewhere", "history_users"))).rejects.toThrow();
      expect(await count("idempotency_keys")).toBe(0);
      expect(record.rounds()).toBe(0);
      // The entries tell which users are still to go.
      expect(await count("history_blocks")).toBe(1);
      await round();
      expect([await count("history_blocks"), await count("history_users")]).toEqual([0, 0]);
    },
  );

  test("a finished notification goes with its chunks when it is as old, dead letters included", async () => {
    await notification(limit + 1, { chunks: ["DONE", "DONE", "DEAD"], viewedBy: { anna: false } });
    await notification(limit + 2, { state: "CANCELLED" });
    const unfinished = await notification(limit + 3, { state: "SENDING" });
    const replayed = await notification(limit + 4, { chunks: ["DONE", "READY"] });
    const held = await notification(limit + 5, { state: "PAUSED", chunks: ["PARKED"] });
    const young = await notification(limit - 1, { chunks: ["DONE", "DEAD"] });
    await round();
    expect(await column("id", "notifications")).toEqual([unfinished, replayed, held, young].sort());
    expect(await column("state", "delivery_chunks")).toEqual(["DEAD", "DONE", "DONE", "PARKED", "READY"]);
  });

  test("names and values of users go when no dead letter of their notification can be replayed", async () => {
    const expired = await notification(60, { chunks: ["DONE", "DEAD"] });
    const others = [
      await notification(-60, { chunks: ["DEAD"] }),
      await notification(60, { state: "SENDING", chunks: ["DEAD", "READY"] }),
    ].sort();
    await db().execute(sql`
      insert into push.notification_users (notification_id, position, user_id)
      select id, 1, 'anna' from unnest(${`{${[expired, ...others].join(",")}}`}::uuid[]) as id`);
    await round();
    expect(await column("notification_id", "notification_users")).toEqual(others);
  });

  test("idempotency keys go when they expire", async () => {
    await db().execute(sql`
      insert into push.idempotency_keys values
        ('\\x01', '\\x', gen_random_uuid(), ${at(0)}), ('\\x02', '\\x', gen_random_uuid(), ${at(60)})`);
    await round();
    expect(await column("key_hash", "idempotency_keys")).toEqual(["\\x02"]);
  });

  test("a round goes on until nothing is left, however much there is", async () => {
    await db().execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      select 'anna', 'fcm', n::text, sha256(n::text::bytea), 0, ${at(-1)}, now(), now() from generate_series(1, 5001) n`);
    const id = await notification(limit + 1, {});
    await insertEntries(db(), id, sql`select 'user-' || n from generate_series(1, 3000) n`);
    await db().execute(sql`
      insert into push.history_blocks
      select max(user_block), (left(${id}, 24) || lpad(n::text, 12, '0'))::uuid, max(recipient_bits::text)::bit(512)
      from push.history_blocks, generate_series(1, 400) n group by n`);
    const blocks = await count("history_blocks");
    await db().execute(sql`
      insert into push.history_entries select user_number, ${id}::uuid from push.history_users`);
    await db().execute(sql`
      insert into push.history_views select n, ${id}::uuid, now() from generate_series(1, 5001) n`);
    await db().execute(sql`
      insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, state, device_ids, planned, sent)
      select ${id}::uuid, 'fcm', 0, 0, 'DONE', '{}', 1, 1 from generate_series(1, 5001)`);
    await db().execute(sql`
      insert into push.idempotency_keys
      select sha256(n::text::bytea), '\\x', gen_random_uuid(), ${at(-1)} from generate_series(1, 5001) n`);
    for (let turn = 0; turn < 101; turn += 1) await notification(limit + 2, {});
    const record = janitorRecord<(typeof janitorKinds)[number]>();
    await cleanUp({ db: db(), historyRetentionDays, observer: record.observer });
    for (const table of tables.slice(0, -1) as (typeof tables)[number][])
      expect(await count(table), table).toBe(0);
    expect(await count("outbox")).toBe(5001);
    expect(record.rows).toEqual({
      devices: 5001,
      history_blocks: blocks,
      history_entries: 3000,
      history_users: 3000,
      history_views: 5001,
      message_outcomes: 0,
      send_rates: 0,
      notification_users: 0,
      delivery_chunks: 5001,
      notifications: 102,
      idempotency_keys: 5001,
      inbox: 0,
    });
    expect(record.caughtUp).toEqual(new Set(janitorKinds));
    expect(record.rounds()).toBe(1);
  });

  test("when it is time to stop it ends after the current batch, and the next round does the rest", async () => {
    await device("expired", -1);
    const stopped = new AbortController();
    stopped.abort();
    const record = janitorRecord();
    await cleanUp({ db: db(), historyRetentionDays, observer: record.observer }, stopped.signal);
    expect(await count("devices")).toBe(1);
    expect(record.caughtUp).toEqual(new Set());
    expect(record.rounds()).toBe(0);
    await round();
    expect(await count("devices")).toBe(0);
  });

  test("rounds until it is stopped, and goes on after one that failed", async () => {
    const log = captureLog();
    await device("expired", -1);
    vi.spyOn(db(), "transaction").mockRejectedValueOnce(new Error("no database"));
    const janitor = startJanitor({
      db: db(),
      historyRetentionDays,
      logger: log.logger,
      intervalSeconds: 0.01,
    });
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
    "a machine whose clock is wrong removes nothing that has not expired",
    async () => {
      await device("alive", 60);
      await notification(1, { viewedBy: { anna: false } });
      const wrong = vi.spyOn(Date, "now").mockReturnValue(Date.now() + 365 * day * 1000);
      await round().finally(() => wrong.mockRestore());
      expect([await count("devices"), await count("history_blocks")]).toEqual([1, 1]);
    },
  );

  test("the id of an event goes once the event cannot come again, and not sooner", async () => {
    const received = async (age: number) =>
      db().execute(
        sql`insert into push.inbox values (gen_random_uuid(), now() - ${age}::int * interval '1 second')`,
      );
    await received(8 * day + 1);
    await received(8 * day - 60);
    await round();
    expect(await count("inbox")).toBe(1);
    const roundWith = (inboxRetentionDays: () => Promise<number>) =>
      cleanUp({ db: db(), historyRetentionDays, inboxRetentionDays });
    await received(1_000 * day);
    await roundWith(() => Promise.reject(new Error("the broker is away")));
    await roundWith(async () => Number.POSITIVE_INFINITY);
    expect(await count("inbox")).toBe(2);
    await roundWith(async () => 7);
    expect(await count("inbox")).toBe(0);
  });
});
