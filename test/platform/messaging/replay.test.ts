/** A broker that has lost its disk gets the events of the last hours again, in their order, before anything newer. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { cleanUp } from "../../../src/auth/janitor.ts";
import { brokerStreams, keptEvents, outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import { FollowedStream } from "../../../src/platform/messaging/followed-stream.ts";
import { keepDelivered, takeBackLost } from "../../../src/platform/messaging/kept-events.ts";
import { captureLog } from "../../support/captured-log.ts";
import { findNats, type Nats, startNats } from "../../support/nats.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { takenForEmpty } from "../../support/taken-for-empty.ts";
import { waitFor } from "../../support/wait-for.ts";
import { makeAnew, received, relaying, stream, type Written, where } from "./relaying.ts";

/** When a stream was made, and the one after it, as the broker writes it: before any that is made during a test. */
const [first, second] = ["2000-11-20T08:00:00.123456789Z", "2000-11-21T09:30:00.5Z"] as const;

describe.each(backends)("events that are kept for replay, on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(async () => {
    for (const table of [outbox, keptEvents, brokerStreams, relayLeases])
      await database.db.execute(sql`delete from ${table}`);
  });

  /** Writes an event for each of the subjects, one after the other. */
  async function write(...subjects: string[]): Promise<Written[]> {
    const written: Written[] = [];
    for (const subject of subjects) {
      const id = randomUUID();
      const data = JSON.stringify({ identityId: subject });
      await database.db.execute(sql`
        insert into auth.outbox (id, type, subject, data, occurred_at)
        values (${id}::uuid, 'auth.identity.updated.v1', ${subject}, ${data}::jsonb, now())`);
      written.push({ id, subject });
    }
    return written;
  }
  async function positions(table: "outbox" | "kept_events"): Promise<number[]> {
    const found = await rows<{ position: number }>(
      database.db,
      sql`select position::int from ${sql.identifier("auth")}.${sql.identifier(table)} order by position`,
    );
    return found.map(({ position }) => Number(position));
  }
  /** @returns how many went back */
  async function takeBack(made: string, db: Database = database.db): Promise<number> {
    let total = 0;
    await takeBackLost(db, outbox, where, made, ({ moved }) => {
      total += moved;
    });
    return total;
  }
  /** Events that were delivered just now, at the positions from 1 on. */
  const kept = (count: number) => sql`
      insert into auth.kept_events (position, id, type, subject, data, occurred_at, delivered_at)
      select n, gen_random_uuid(), 't', 's', '{}', now(), now() from generate_series(1, ${count}::int) as n`;
  const keep = (count: number) => database.db.execute(kept(count));
  /** So many that a statement that looked for a step's events again for each event would be ended by its time-out. */
  const manyEvents = 40_000;
  const upTo = (count: number, from = 1) => Array.from({ length: count - from + 1 }, (_, n) => n + from);
  /** The database of a process that is killed after a step. */
  function dying(): Database {
    let steps = 0;
    return new Proxy(database.db, {
      get(db, key, receiver) {
        if (key !== "transaction") return Reflect.get(db, key, receiver);
        return (work: (tx: Database) => Promise<unknown>) => {
          steps += 1;
          return steps > 1 ? Promise.reject(new Error("killed")) : db.transaction(work);
        };
      },
    });
  }
  const created = async () =>
    (await rows<{ created: string }>(database.db, sql`select created from auth.broker_streams`))[0]?.created;

  test("go back at their old positions once their stream is another one, and no event is kept for one that is gone", async () => {
    await write("a", "b", "a");
    expect(await takeBack(first)).toBe(0);
    const all = await positions("outbox");
    expect(await keepDelivered(database.db, outbox, where, first, all)).toBe(3);
    expect([await positions("outbox"), await positions("kept_events")]).toEqual([[], all]);
    expect(await takeBack(first)).toBe(0);
    // Delivered to the first stream, by a process that did not notice its end.
    await write("c");
    const late = (await positions("outbox")).slice(-1);
    expect(await takeBack(second)).toBe(3);
    expect(await keepDelivered(database.db, outbox, where, first, late)).toBe(0);
    expect([await positions("outbox"), await positions("kept_events")]).toEqual([[...all, ...late], []]);
    expect(await created()).toBe(second);
  });

  test("keep the moment of their first delivery, so that they go in the end however often the broker loses them", async () => {
    await write("a");
    await takeBack(first);
    await keepDelivered(database.db, outbox, where, first, await positions("outbox"));
    const longAgo = sql`clock_timestamp() - interval '23 hours'`;
    await database.db.execute(sql`update auth.kept_events set delivered_at = ${longAgo}`);
    await takeBack(second);
    await keepDelivered(database.db, outbox, where, second, await positions("outbox"));
    await cleanUp(database.db, { replayHours: 24 });
    expect(await positions("kept_events")).toHaveLength(1);
    await cleanUp(database.db, { replayHours: 23 });
    expect(await positions("kept_events")).toEqual([]);
  });

  test("are kept no longer once the setting is 0", async () => {
    await write("a");
    await takeBack(first);
    await keepDelivered(database.db, outbox, where, first, await positions("outbox"));
    await cleanUp(database.db);
    expect(await positions("kept_events")).toEqual([]);
  });

  test("go back in steps: who dies on the way leaves the rest to others, and newer events wait meanwhile", async () => {
    await takeBack(first);
    await keep(12_000);
    await expect(takeBack(second, dying())).rejects.toThrow("killed");
    expect((await positions("outbox")).length).toBe(5_000);
    // As long as this is the older one, every relay goes on with the steps first.
    expect(await created()).toBe(first);
    const moved = await Promise.all([1, 2].map(() => takeBack(second)));
    expect(moved.reduce((sum, one) => sum + one)).toBe(7_000);
    expect(await positions("outbox")).toEqual(upTo(12_000));
    expect(await created()).toBe(second);
  });

  // An embedded database makes no statistics by itself, so it has none that are older than its rows.
  test.runIf(backend === "PostgreSQL")(
    "go back soon also where PostgreSQL takes their table for empty",
    async () => {
      await takeBack(first);
      await takenForEmpty(database.db, "auth.kept_events", kept(manyEvents));
      expect(await takeBack(second)).toBe(manyEvents);
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "are deleted soon also where PostgreSQL takes their table for empty",
    async () => {
      await takenForEmpty(database.db, "auth.kept_events", kept(manyEvents));
      await cleanUp(database.db);
      expect(await positions("kept_events")).toEqual([]);
    },
  );

  test("never go back for a stream that was made earlier, unless an operator says so", async () => {
    await write("a", "b");
    await takeBack(second);
    await keepDelivered(database.db, outbox, where, second, await positions("outbox"));
    // As a text, the last one would come after the second.
    for (const earlier of [first, "2000-11-21T09:30:00Z"]) {
      await expect(takeBack(earlier)).rejects.toThrow(
        `this process uses another stream than the others: its ${stream.name} was made at ${earlier}, theirs at ${second}`,
      );
    }
    expect([await positions("outbox"), await created()]).toEqual([[], second]);
    await database.db.execute(sql`update auth.broker_streams set created = '-infinity'`);
    expect(await takeBack(first)).toBe(2);
    expect([await positions("kept_events"), await created()]).toEqual([[], first]);
  });

  test("are deleted where they are older than the setting says: whoever reads may have forgotten their ids", async () => {
    await takeBack(first);
    await keep(3);
    const longAgo = sql`clock_timestamp() - interval '24 hours'`;
    await database.db.execute(sql`update auth.kept_events set delivered_at = ${longAgo} where position < 3`);
    const { logger, lines } = captureLog();
    const replay = { ...where, identify: async () => second };
    const followed = new FollowedStream({ db: database.db, outbox, logger, replay, holdsMs: 0 });
    expect([await followed.created(), await followed.created()]).toEqual([second, second]);
    expect([await positions("outbox"), await positions("kept_events")]).toEqual([[3], []]);
    expect(lines().map(({ msg, events, hours }) => ({ msg, events, hours }))).toEqual([
      { msg: expect.stringContaining("are delivered again"), events: 1, hours: undefined },
      { msg: expect.stringContaining("never will"), events: 2, hours: where.hours },
    ]);
  });

  test("a look at the stream holds for so long, unless a delivery has failed", async () => {
    const { logger } = captureLog();
    let looks = 0;
    const identify = async () => {
      looks += 1;
      return first;
    };
    const options = { db: database.db, outbox, logger, replay: { ...where, identify } };
    const held = new FollowedStream({ ...options, holdsMs: 60_000 });
    expect([await held.created(), await held.created(), looks]).toEqual([first, first, 1]);
    held.forget();
    expect([await held.created(), await held.created(), looks]).toEqual([first, first, 2]);
    // Where nothing waits, it is the only look.
    expect([await held.hasLost(), await held.hasLost(), looks]).toEqual([false, false, 4]);
    const always = new FollowedStream({ ...options, holdsMs: 0 });
    expect([await always.created(), await always.created(), looks]).toEqual([first, first, 6]);
  });

  // An embedded database has one session.
  test.runIf(backend === "PostgreSQL").for([1, 5_000])(
    "all go back but those that a janitor is removing meanwhile: the oldest %i",
    async (removed) => {
      await takeBack(first);
      await keep(12_000);
      const janitor = await own.open();
      const hasBegun = Promise.withResolvers<void>();
      const mayEnd = Promise.withResolvers<void>();
      const removing = janitor.db.transaction(async (tx) => {
        await tx.execute(sql`delete from auth.kept_events where position <= ${removed}`);
        hasBegun.resolve();
        await mayEnd.promise;
      });
      await hasBegun.promise;
      const taking = takeBack(second);
      await waitFor(async () =>
        expect(
          await rows(
            janitor.db,
            sql`select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
          ),
        ).toHaveLength(1),
      );
      mayEnd.resolve();
      await removing;
      expect(await taking).toBe(12_000 - removed);
      expect([await positions("outbox"), await positions("kept_events")]).toEqual([
        upTo(12_000, removed + 1),
        [],
      ]);
      expect(await created()).toBe(second);
    },
  );

  describe.skipIf(findNats() === undefined)("over NATS, the only server", () => {
    async function ownServer(): Promise<Nats> {
      const nats = await startNats();
      onTestFinished(() => nats.stop());
      return nats;
    }

    const idsOf = (events: readonly Written[]) => events.map(({ id }) => id);
    const ofSubject = (events: readonly Written[], subject: string) =>
      idsOf(events.filter((event) => event.subject === subject));
    const isDelivered = () => waitFor(async () => expect(await positions("outbox")).toEqual([]));

    test("they are on the stream again, though nothing else is written", async () => {
      const nats = await ownServer();
      const relay = await relaying(nats, database.db);
      const written = await write("a", "b", "a");
      await isDelivered();
      await nats.restart("lost");
      await waitFor(async () => expect(await received(nats)).toHaveLength(3));
      expect(ofSubject(await received(nats), "a")).toEqual(ofSubject(written, "a"));
      expect(relay.log.text()).toContain("The broker has lost its events");
      await relay.stop();
    });

    test("a disk that was kept brings none of them back", async () => {
      const nats = await ownServer();
      const relay = await relaying(nats, database.db);
      await write("a", "b");
      await isDelivered();
      await nats.restart("kept");
      await write("c");
      await isDelivered();
      await waitFor(async () => expect(await received(nats)).toHaveLength(3));
      expect(relay.log.text()).not.toContain("The broker has lost its events");
      await relay.stop();
    });

    test("they come before what was written since, by whichever process, also if the disk is lost twice", async () => {
      const nats = await ownServer();
      const other = backend === "PostgreSQL" ? (await own.open()).db : database.db;
      const relays = [await relaying(nats, database.db), await relaying(nats, other)];
      const subjects = Array.from({ length: 20 }, (_, n) => `user-${n}`);
      const written = await write(...subjects, ...subjects);
      await isDelivered();
      for (let turn = 0; turn < 2; turn += 1) {
        await nats.kill();
        written.push(...(await write(...subjects)));
        await nats.restart("lost");
        written.push(...(await write(...subjects)));
        // The second time it is lost again as soon as something has come back.
        if (turn === 0) await waitFor(async () => expect((await received(nats)).length).toBeGreaterThan(0));
      }
      await isDelivered();
      await waitFor(async () => expect((await received(nats)).length).toBe(written.length));
      const arrived = await received(nats);
      for (const subject of subjects)
        expect(ofSubject(arrived, subject)).toEqual(ofSubject(written, subject));
      expect(await positions("kept_events")).toHaveLength(written.length);
      await Promise.all(relays.map((relay) => relay.stop()));
    });

    const manySubjects = Array.from({ length: 60 }, (_, n) => `user-${n}`);

    test("the broker is asked once which stream it is, for all parts", async () => {
      const nats = await ownServer();
      await write(...manySubjects);
      const relay = await relaying(nats, database.db, { intervalMs: 60_000 });
      await isDelivered();
      expect(relay.looks()).toBe(1);
      await relay.stop();
    });

    test("none is lost that went to a stream which was made anew after the look, and before the delivery", async () => {
      const nats = await ownServer();
      const written = await write(...manySubjects);
      let batches = 0;
      const mayDeliver = async () => {
        batches += 1;
        if (batches === 3) await makeAnew(nats);
      };
      const relay = await relaying(nats, database.db, { intervalMs: 300, mayDeliver });
      await isDelivered();
      await waitFor(async () => expect(await received(nats)).toHaveLength(written.length));
      await isDelivered();
      // Each of these subjects has one event, so that there is no order of theirs.
      expect(idsOf(await received(nats)).sort()).toEqual(idsOf(written).sort());
      expect(await positions("kept_events")).toHaveLength(written.length);
      // Those of the first look have been taken back.
      expect(relay.log.text()).toContain("The broker has lost its events");
      await relay.stop();
    });

    test("the exception from their order: what reached a stream that was made anew before that was noticed stays first", async () => {
      const nats = await ownServer();
      // A whole batch of the subject, and the first of the next batch.
      const written = await write(...Array.from({ length: 101 }, () => "a"));
      let batches = 0;
      const isMadeAnew = Promise.withResolvers<void>();
      const mayDeliver = async () => {
        batches += 1;
        if (batches === 2) await makeAnew(nats).then(isMadeAnew.resolve, isMadeAnew.reject);
      };
      const relay = await relaying(nats, database.db, { intervalMs: 300, mayDeliver });
      await isMadeAnew.promise;
      await waitFor(async () => expect(await received(nats)).toHaveLength(written.length));
      await isDelivered();
      const arrived = await received(nats);
      // It comes again in its place, where the broker drops it; all others are in their order.
      expect(arrived).toEqual([...written.slice(-1), ...written.slice(0, -1)]);
      expect(await positions("kept_events")).toHaveLength(written.length);
      await relay.stop();
    });

    test("processes that use different brokers do not take them back from each other: those with the older one stop", async () => {
      const [older, newer] = [await ownServer(), await ownServer()];
      const behind = await relaying(older, database.db);
      await write("a");
      await isDelivered();
      const ahead = await relaying(newer, database.db);
      await waitFor(() => expect(behind.log.text()).toContain("this process uses another stream"));
      await write("b", "a");
      await isDelivered();
      await waitFor(async () => expect(await received(newer)).toHaveLength(3));
      expect(await received(older)).toHaveLength(1);
      expect(ahead.log.lines().filter(({ events }) => events !== undefined)).toMatchObject([{ events: 1 }]);
      await Promise.all([behind.stop(), ahead.stop()]);
    });

    test("a failure of the database on the way is told of, and how many went back before it", async () => {
      const nats = await ownServer();
      await takeBack(first);
      // Of a type that nobody knows, so that nothing else is to be done.
      await keep(12_000);
      const relay = await relaying(nats, dying());
      await waitFor(() => expect(relay.log.text()).toContain("killed"));
      expect(relay.log.lines().filter(({ events }) => events !== undefined)).toMatchObject([
        { events: 5_000 },
      ]);
      await relay.stop();
    });

    test("without the setting nothing is kept; from then on that it is set, what is delivered is", async () => {
      const nats = await ownServer();
      const without = await relaying(nats, database.db, { keeps: false });
      await write("a");
      await isDelivered();
      await without.stop();
      const relay = await relaying(nats, database.db);
      const [later] = await write("b");
      await isDelivered();
      await nats.restart("lost");
      await waitFor(async () => expect(await received(nats)).toEqual([later]));
      await relay.stop();
    });
  });
});
