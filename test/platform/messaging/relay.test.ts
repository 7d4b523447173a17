/** The relay of events: at least once, in order, one process at a time, whatever the delivery does. */
import { fork } from "node:child_process";
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { createIdentities } from "../../../src/auth/identities/identities.ts";
import { outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import type { CloudEvent } from "../../../src/platform/messaging/cloud-event.ts";
import { oldestEvents, relayOnce } from "../../../src/platform/messaging/relay.ts";
import { startRelay } from "../../../src/platform/messaging/relay-loop.ts";
import { analyze } from "../../support/analyze.ts";
import { newPhone } from "../../support/auth-api.ts";
import { captureLog } from "../../support/captured-log.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const clock = { now: () => Date.UTC(2026, 10, 21, 9, 30, 15, 123) };

describe.each(backends)("the relay on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const log = captureLog();
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(() => database.db.execute(sql`delete from auth.outbox`));

  /** Writes as many events as the service does for as many new identities; returns their ids in order. */
  async function write(count: number): Promise<string[]> {
    const identities = createIdentities(database.db, clock);
    const ids = Array.from({ length: count }, () => randomUUID());
    for (const id of ids) await identities.create(id, { phone: newPhone() });
    return ids;
  }
  async function waiting(): Promise<number> {
    const [found] = await rows<{ n: number }>(database.db, sql`select count(*)::int as n from auth.outbox`);
    return Number(found?.n);
  }
  function settings(deliver: (event: CloudEvent) => Promise<void>, db = database.db) {
    return {
      db,
      outbox,
      leases: relayLeases,
      source: "https://id.example.com/api/auth",
      subscribers: [{ deliver }],
      logger: log.logger,
    };
  }
  /** Takes note of what it is given; the event with this number (from 1) is refused. */
  function recorder(refused?: number) {
    const subjects: string[] = [];
    const deliver = async ({ subject }: CloudEvent) => {
      subjects.push(subject);
      if (subjects.length === refused) throw new Error("the broker is away");
    };
    return { subjects, deliver };
  }

  test("an event is a CloudEvent with the id and the time of its writing", async () => {
    const [subject] = await write(1);
    const events: CloudEvent[] = [];
    expect(await relayOnce(settings(async (event) => void events.push(event)))).toBe(1);
    expect(events).toEqual([
      {
        specversion: "1.0",
        id: expect.stringMatching(/^[0-9a-f-]{36}$/),
        source: "https://id.example.com/api/auth",
        type: "auth.identity.created.v1",
        subject,
        time: "2026-11-21T09:30:15.123Z",
        datacontenttype: "application/json",
        data: { identityId: subject },
      },
    ]);
    expect(await waiting()).toBe(0);
  });

  test("events are delivered in order, a batch at a time, and are gone afterwards", async () => {
    const ids = await write(230);
    const { subjects, deliver } = recorder();
    const counts: number[] = [];
    for (let round = 0; round < 4; round += 1) counts.push(await relayOnce(settings(deliver)));
    expect(counts).toEqual([100, 100, 30, 0]);
    expect(subjects).toEqual(ids);
    expect(await waiting()).toBe(0);
  });

  test("after a delivery that failed, that event and all of its batch come again, under the same ids", async () => {
    const ids = await write(5);
    const first = recorder(3);
    await expect(relayOnce(settings(first.deliver))).rejects.toThrow("the broker is away");
    expect(first.subjects).toEqual(ids.slice(0, 3));
    expect(await waiting()).toBe(5);
    const second = recorder();
    expect(await relayOnce(settings(second.deliver))).toBe(5);
    expect(second.subjects).toEqual(ids);
    expect(await waiting()).toBe(0);
  });

  test("a batch that does not arrive, though it was taken, comes again; one waits until what was before it arrived", async () => {
    await write(3);
    const { subjects, deliver } = recorder();
    const flushes = [() => Promise.reject(new Error("nobody reads")), async () => undefined];
    const withFlush = (flush: () => Promise<void>) => ({
      ...settings(deliver),
      subscribers: [{ deliver, flush }],
    });
    const next = () => flushes.shift()?.() ?? Promise.reject(new Error("nobody reads any more"));
    await expect(relayOnce(withFlush(next))).rejects.toThrow("nobody reads");
    expect(subjects).toEqual([]);
    await expect(relayOnce(withFlush(next))).rejects.toThrow("nobody reads any more");
    expect(subjects).toHaveLength(3);
    expect(await waiting()).toBe(3);
    expect(await relayOnce(withFlush(async () => undefined))).toBe(3);
    expect(subjects.slice(3)).toEqual(subjects.slice(0, 3));
    expect(await waiting()).toBe(0);
  });

  test("a new reason for which nothing can be delivered is told at once, however often another one was", async () => {
    await write(1);
    const { logger, text } = captureLog();
    const reasons = [..."aaab"].map((kind) => (kind === "a" ? "the broker is away" : "the disk is full"));
    const flush = async () => {
      const reason = reasons.shift();
      if (reason !== undefined) throw new Error(reason);
    };
    const subscribers = [{ deliver: () => undefined, flush }];
    const relay = startRelay({ ...settings(async () => undefined), subscribers, logger, intervalMs: 1 });
    await waitFor(async () => expect(await waiting()).toBe(0));
    await relay.stop();
    expect(text()).toContain("the broker is away");
    expect(text()).toContain("the disk is full");
  });

  test("events are delivered once they may be, and none of them before", async () => {
    const ids = await write(3);
    const { subjects, deliver } = recorder();
    const asked: string[][] = [];
    const refusing = async (events: readonly CloudEvent[]) => {
      asked.push(events.map(({ subject }) => subject));
      if (asked.length === 1) throw new Error("the standbys do not have it");
      expect(subjects).toEqual([]);
    };
    const guarded = { ...settings(deliver), mayDeliver: refusing };
    await expect(relayOnce(guarded)).rejects.toThrow("the standbys do not have it");
    expect([subjects, await waiting()]).toEqual([[], 3]);
    expect(await relayOnce(guarded)).toBe(3);
    expect(asked).toEqual([ids, ids]);
    expect(await relayOnce(guarded)).toBe(0);
    expect(asked).toHaveLength(2);
  });

  test.each([false, true])(
    "an event of a newer version waits, and holds up none of another type (in parts: %s)",
    async (inParts) => {
      const ids = await write(3);
      await database.db.execute(sql`
      update auth.outbox set type = 'auth.identity.renamed.v1', subject = ${ids[1]}
      where position = (select min(position) from auth.outbox)`);
      const own = captureLog();
      const { subjects, deliver } = recorder();
      const known = {
        ...settings(deliver),
        logger: own.logger,
        inParts,
        subscribers: [{ deliver, types: ["auth.identity.created.v1"] }],
      };
      const relay = startRelay({ ...known, intervalMs: 20 });
      await waitFor(() => expect(own.text()).toContain("Events of a newer version wait in the outbox"));
      await relay.stop();
      expect(subjects.toSorted()).toEqual(ids.slice(1).toSorted());
      expect(await waiting()).toBe(1);
      // Where all types are known, as after the update, it is delivered.
      const newer = startRelay({ ...known, subscribers: [{ deliver }], intervalMs: 20 });
      await waitFor(async () => expect(await waiting()).toBe(0));
      await newer.stop();
      expect(subjects.at(-1)).toBe(ids[1]);
    },
  );

  test("a batch that was found too late for its lease is an error, and waits", async () => {
    await write(2);
    const { subjects, deliver } = recorder();
    const late = performance.now() + 15_000;
    // As if the standbys had taken so long.
    const mayDeliver = async () => void vi.spyOn(performance, "now").mockReturnValue(late);
    const relaying = relayOnce({ ...settings(deliver), mayDeliver }).finally(() => vi.restoreAllMocks());
    await expect(relaying).rejects.toThrow("no time was left to deliver them");
    expect([subjects, await waiting()]).toEqual([[], 2]);
    expect(await relayOnce(settings(deliver))).toBe(2);
  });

  test("a lease that was given by a clock which is ahead holds nobody up", async () => {
    await write(1);
    const far = sql`clock_timestamp() + interval '1 hour'`;
    await database.db.execute(sql`
      insert into auth.relay_leases (part, lease, expires_at) values (0, gen_random_uuid(), ${far})
      on conflict (part) do update set expires_at = ${far}`);
    expect(await relayOnce(settings(recorder().deliver))).toBe(1);
  });

  test("the events of a part are found at once, however many of another part stand before them", async () => {
    const partOf = (subject: string) => sql`hashtext(${subject}) & 7`;
    await database.db.execute(sql`
      insert into auth.outbox (id, type, subject, data, occurred_at)
      select gen_random_uuid(), 't', 'blocked', '{}', now() from generate_series(1, 20000)`);
    await analyze(backend, database.db, "auth.outbox");
    const ids = await write(30);
    const [found] = await rows<{ part: number; subjects: string[] }>(
      database.db,
      sql`
        select part, json_agg(subject order by position) as subjects
        from (select *, hashtext(subject) & 7 as part from auth.outbox where subject <> 'blocked') as event
        where part <> ${partOf("blocked")} group by part limit 1`,
    );
    const ofPart = { ...settings(recorder().deliver), inParts: true };
    const query = oldestEvents(database.db, ofPart, Number(found?.part));
    const subjects = (await query).map(({ subject }) => subject);
    expect(subjects).toEqual(found?.subjects);
    expect(ids).toEqual(expect.arrayContaining(subjects));
    const plan = await rows<{ "QUERY PLAN": string }>(
      database.db,
      sql`explain (analyze, timing off) ${query}`,
    );
    const lines = plan.map((line) => line["QUERY PLAN"]).join("\n");
    expect(lines).toContain("outbox_parts");
    expect(lines).not.toMatch(/Filter/);
  });

  test("an event whose change was rolled back is never delivered", async () => {
    const identities = createIdentities(database.db, clock);
    const phone = newPhone();
    const kept = randomUUID();
    await identities.create(kept, { phone });
    await expect(identities.create(randomUUID(), { phone })).rejects.toThrow();
    const { subjects, deliver } = recorder();
    await relayOnce(settings(deliver));
    expect(subjects).toEqual([kept]);
  });

  test("the running relay continues after a failure, logs it, and stops on request", async () => {
    const ids = await write(3);
    const { subjects, deliver } = recorder(2);
    const relay = startRelay({ ...settings(deliver), intervalMs: 5 });
    await waitFor(() => expect(subjects).toEqual([...ids.slice(0, 2), ...ids]));
    const [late] = await write(1);
    await waitFor(() => expect(subjects.at(-1)).toBe(late));
    await relay.stop();
    const [never] = await write(1);
    expect(await waiting()).toBe(1);
    expect(subjects).not.toContain(never);
    expect(log.text()).toContain("Events could not be delivered and will be retried");
  });

  describe.runIf(backend === "PostgreSQL")("of several processes", () => {
    test("one relays at a time; the others wait for their turn", async () => {
      const ids = await write(2);
      const other = await own.open();
      const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const first = recorder();
      const relaying = relayOnce(
        settings(async (event) => {
          await first.deliver(event);
          begun.resolve();
          await mayEnd.promise;
        }),
      );
      await begun.promise;
      const second = recorder();
      expect(await relayOnce(settings(second.deliver, other.db))).toBe(0);
      mayEnd.resolve();
      expect(await relaying).toBe(2);
      expect(await relayOnce(settings(second.deliver, other.db))).toBe(0);
      expect([first.subjects, second.subjects]).toEqual([ids, []]);
    });

    test("a subscriber that takes its time holds no connection", async () => {
      await write(1);
      const small = await own.open({ poolSize: 2 });
      const [begun, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const relaying = relayOnce(
        settings(async () => {
          begun.resolve();
          await mayEnd.promise;
        }, small.db),
      );
      await begun.promise;
      // The pool has one connection for this.
      await small.db.transaction((tx) => tx.execute(sql`select 1`));
      mayEnd.resolve();
      expect(await relaying).toBe(1);
    });

    test("if one hangs in the middle, another continues once its lease is over, and it does not", async () => {
      const ids = await write(3);
      const program = fileURLToPath(new URL("../../support/relay-program.ts", import.meta.url));
      const child = fork(program, [JSON.stringify(own.settings)]);
      const gone = once(child, "exit");
      let received = 0;
      child.on("message", () => {
        received += 1;
        if (received === 2) child.kill("SIGSTOP");
      });
      await waitFor(() => expect(received).toBe(2));
      const second = recorder();
      await waitFor(async () => expect(await relayOnce(settings(second.deliver))).toBe(3));
      expect(second.subjects).toEqual(ids);
      child.kill("SIGCONT");
      child.send("go on");
      await gone;
      expect(received).toBe(2);
    });

    test("parts are relayed side by side, a subject's events in order, and one that hangs holds up no other", async () => {
      const subjects = await write(40);
      for (let turn = 0; turn < 3; turn += 1) {
        await database.db.execute(sql`
          insert into auth.outbox (id, type, subject, data, occurred_at)
          select gen_random_uuid(), 'again.' || ${turn}::int, subject, data, now() from auth.outbox
          where type not like 'again.%' order by position`);
      }
      const other = await own.open();
      const mayEnd = Promise.withResolvers<void>();
      const taken: (readonly [subject: string, type: string])[] = [];
      const held: string[] = [];
      const deliver = async ({ subject, type }: CloudEvent) => void taken.push([subject, type]);
      const hang = async ({ subject }: CloudEvent) => {
        held.push(subject);
        await mayEnd.promise;
      };
      const [first] = await rows<{ part: number }>(
        database.db,
        sql`select hashtext(${subjects[0]}) & 7 as part`,
      );
      const part = Number(first?.part);
      const hanging = relayOnce({ ...settings(hang), inParts: true }, part);
      await waitFor(() => expect(held).toHaveLength(1));
      const relay = startRelay({ ...settings(deliver, other.db), inParts: true, intervalMs: 5 });
      const others = await rows<{ subject: string }>(
        database.db,
        sql`select distinct subject from auth.outbox where (hashtext(subject) & 7) <> ${part}::int`,
      );
      expect(others.length).toBeLessThan(subjects.length);
      const typesOf = (subject: string) => taken.filter(([name]) => name === subject).map(([, type]) => type);
      const types = ["auth.identity.created.v1", "again.0", "again.1", "again.2"];
      await waitFor(() => {
        for (const { subject } of others) expect(typesOf(subject)).toEqual(types);
      });
      mayEnd.resolve();
      await hanging;
      await waitFor(async () => expect(await waiting()).toBe(0));
      await relay.stop();
    });

    test("two running relays deliver each event once between them, each process in order", async () => {
      const other = await own.open();
      const [first, second] = [recorder(), recorder()];
      const relays = [
        startRelay({ ...settings(first.deliver), intervalMs: 2 }),
        startRelay({ ...settings(second.deliver, other.db), intervalMs: 2 }),
      ];
      const ids = (await Promise.all([write(60), write(60), write(60)])).flat();
      await waitFor(() => expect(first.subjects.length + second.subjects.length).toBe(ids.length));
      await Promise.all(relays.map((relay) => relay.stop()));
      expect([...first.subjects, ...second.subjects].sort()).toEqual([...ids].sort());
      for (const { subjects } of [first, second]) {
        const own = subjects.filter((subject) => ids.indexOf(subject) < 60);
        expect(own).toEqual(ids.slice(0, 60).filter((id) => own.includes(id)));
      }
    });
  });
});
