/** Messages that wait for their answers: what goes on meanwhile, and what is stored of their chunks. */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import type { Outcome } from "../../../src/push/providers/provider.ts";
import { Processes } from "../../../src/push/queue/processes.ts";
import { ChunkLostError, storeResults } from "../../../src/push/queue/store-results.ts";
import { ChunkTaker } from "../../../src/push/queue/take-chunks.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import {
  createDeliveryTest,
  type DeliveryTest,
  eventually,
  type Planned,
  recordingProvider,
} from "./delivery-fixture.ts";

const sent: Outcome = { kind: "sent" };

describe.each(backends)("slow answers on %s", (backend) => {
  let test: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  /** Answer what has not been answered: a worker stops when nothing is in flight. */
  const answers: (() => void)[] = [];
  afterEach(async () => {
    for (const answer of answers.splice(0)) answer();
    await test.stopWorkers();
    await test.clearState();
  });

  /** A provider that has not answered some messages yet. */
  function slowProvider(maxInFlight: number, isLate: (token: string) => boolean) {
    const provider = recordingProvider(maxInFlight);
    const { promise, resolve } = Promise.withResolvers<Outcome>();
    const answerLate = () => resolve(sent);
    answers.push(answerLate);
    provider.answer = ({ token }) => (isLate(token) ? promise : sent);
    return { provider, answerLate };
  }

  /** As if all its devices had been tried before. */
  async function moveBack({ notificationId }: Planned): Promise<void> {
    await test.db.execute(
      sql`update push.delivery_chunks set is_retry = true where notification_id = ${notificationId}::uuid`,
    );
  }

  it("keep no other message waiting, and those that came are stored", async () => {
    const planned = await test.plan({ devices: 150, chunkSize: 50 });
    const { provider, answerLate } = slowProvider(20, (token) => token === planned.tokens[7]);
    test.startWorker({ providers: [provider] });
    await eventually(
      async () => (await test.chunks(planned)).reduce((sum, one) => sum + one.sent, 0) === 149,
    );
    const [first, ...others] = await test.chunks(planned);
    expect(first).toMatchObject({ state: "TAKEN", sent: 49, rest: 1 });
    expect(others).toMatchObject([{ state: "DONE" }, { state: "DONE" }]);
    const left = await rows(
      test.db,
      sql`select device_ids[1]::int as id from push.delivery_chunks where id = ${planned.chunkIds[0]}::bigint`,
    );
    expect(left).toEqual([{ id: planned.deviceIds[7] }]);
    answerLate();
    const [ended] = await test.until(planned, ["DONE"]);
    expect(ended).toMatchObject({ sent: 50, rest: 0, retries: 0 });
    expect(provider.sent).toHaveLength(150);
  });

  it("share what may be in flight over all chunks, which never is exceeded", async () => {
    const planned = await test.plan({ devices: 60, chunkSize: 15 });
    const provider = recordingProvider(20);
    const open = answers;
    let most = 0;
    provider.answer = () => {
      const { promise, resolve } = Promise.withResolvers<Outcome>();
      open.push(() => resolve(sent));
      most = Math.max(most, open.length);
      return promise;
    };
    test.startWorker({ providers: [provider] });
    await eventually(() => open.length === 20);
    // The first answers make room for the messages that have waited longest.
    for (const answer of open.splice(0, 3)) answer();
    await eventually(() => open.length === 20);
    const inOrder = provider.sent.map(({ token }) => planned.tokens.indexOf(token));
    expect(inOrder).toEqual(Array.from({ length: 23 }, (_, index) => index));
    const answering = setInterval(() => {
      for (const answer of open.splice(0)) answer();
    }, 5);
    await test.until(planned, ["DONE"]);
    clearInterval(answering);
    expect(most).toBe(20);
    expect(provider.sent).toHaveLength(60);
  });

  it("of a notification that is paused keep no other notification waiting", async () => {
    const planned = await test.plan({ devices: 200 });
    const { provider, answerLate } = slowProvider(50, (token) => token === planned.tokens[0]);
    test.startWorker({ providers: [provider], settings: { maxPerSecond: 100 } });
    await eventually(() => provider.sent.length > 5);
    await test.pause(planned);
    const other = await test.plan({ devices: 10 });
    expect(await test.until(other, ["DONE"])).toMatchObject([{ sent: 10 }]);
    expect(await test.chunks(planned)).toMatchObject([{ state: "TAKEN" }]);
    answerLate();
    const [parked] = await test.until(planned, ["PARKED"]);
    expect(parked?.sent).toBe(provider.sent.length - 10);
    await test.setState(planned, "CANCELLED");
  });

  it("keep the rest of their own chunk waiting neither when its turn is over nor when the process ends", async () => {
    const planned = await test.plan({ devices: 120 });
    const { provider, answerLate } = slowProvider(50, (token) => token === planned.tokens[0]);
    const options = { providers: [provider], settings: { maxPerSecond: 50 }, rules: { maxSendingMs: 300 } };
    const first = test.startWorker(options);
    await eventually(() => provider.sent.length > 40);
    const stopping = first.stop();
    test.startWorker(options);
    await eventually(() => provider.sent.length === 120);
    await eventually(
      async () => (await test.chunks(planned)).reduce((sum, one) => sum + one.sent, 0) === 119,
    );
    answerLate();
    await stopping;
    await eventually(async () => (await test.chunks(planned)).every(({ state }) => state === "DONE"));
    const chunks = await test.chunks(planned);
    expect(chunks.reduce((sum, one) => sum + one.sent, 0)).toBe(120);
    expect(chunks.reduce((sum, one) => sum + one.planned, 0)).toBe(120);
    expect(provider.sent).toHaveLength(120);
  });

  it("that never come keep their devices from no other take, and count once if they come after all", async () => {
    const planned = await test.plan({ devices: 5 });
    const [hung] = planned.tokens;
    const provider = recordingProvider();
    const never = Promise.withResolvers<Outcome>();
    let tries = 0;
    provider.answer = ({ token }) => {
      if (token !== hung) return sent;
      tries += 1;
      if (tries === 1) return never.promise;
      never.resolve(sent);
      return sent;
    };
    test.startWorker({ providers: [provider], rules: { maxHeldMs: 400 } });
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: 5, failed: 0, rest: 0, retries: 0 }]);
    await test.stopWorkers();
    expect(await test.chunks(planned)).toMatchObject([{ sent: 5 }]);
    expect(provider.sent.map(({ token }) => token)).toEqual([...planned.tokens, hung]);
    expect(new Set(provider.sent.map(({ messageId }) => messageId)).size).toBe(5);
  });

  describe.each([
    ["chunks", { devices: 8, chunkSize: 1 }, { maxOpenChunks: 4 }, 3],
    ["messages", { devices: 40, chunkSize: 20 }, {}, 15],
  ])("of devices that were tried before leave room for what is fresh", (what, silentPlan, rules, most) => {
    it(`among the ${what}`, async () => {
      const silent = await test.plan({ ...silentPlan, name: `silent-${what}` });
      await moveBack(silent);
      const { provider, answerLate } = slowProvider(20, (token) => token.startsWith("silent"));
      test.startWorker({ providers: [provider], rules });
      await eventually(() => provider.sent.length === most);
      const fresh = await test.plan({ devices: 30, chunkSize: 10 });
      expect(await test.until(fresh, ["DONE"])).toMatchObject(Array(3).fill({ sent: 10 }));
      expect(provider.sent).toHaveLength(most + 30);
      answerLate();
      await test.until(silent, ["DONE"]);
    });
  });

  it("of devices that were tried before reserve no more of the rate than what is sent next", async () => {
    const silent = await test.plan({ devices: 120, chunkSize: 10 });
    await moveBack(silent);
    const provider = recordingProvider(20);
    test.startWorker({ providers: [provider], settings: { maxPerSecond: 20 } });
    const ahead: number[] = [];
    await eventually(async () => {
      const [pace] = await rows<{ seconds: number }>(
        test.db,
        sql`
          select extract(epoch from next_at - clock_timestamp())::float8 as seconds from push.provider_states
          where provider = 'fcm' and service = ''`,
      );
      ahead.push(pace?.seconds ?? 0);
      return provider.sent.length > 30;
    });
    // A chunk is half a second of the rate, and two may have reserved theirs: the one that is sent and the next.
    expect(Math.max(...ahead)).toBeLessThan(2);
    await test.setState(silent, "CANCELLED");
  });

  it("of the database to a take make the next ones begin at the last, until nothing is there", async () => {
    /** Plans as many chunks of a device, with the turn of a large notification or of a small one. */
    async function plan(chunks: number, turn: number): Promise<void> {
      const { notificationId } = await test.plan({ devices: chunks, chunkSize: 1, name: `turn-${turn}` });
      await test.db.execute(
        sql`update push.delivery_chunks set turn = ${turn}::bigint where notification_id = ${notificationId}::uuid`,
      );
    }
    const db: Database = Object.create(test.db, {
      execute: {
        value: async (statement: SQL) => {
          await test.db.execute(sql`select pg_sleep(0.03)`);
          return test.db.execute(statement);
        },
      },
    });
    const processes = new Processes({ db, leases: db, logger: test.log.logger, released: () => undefined });
    const taker = new ChunkTaker(db, processes, "fcm");
    const takes = async () => (await taker.take(1, { chunks: 1, retries: 1 }, [])).map(({ turn }) => turn);
    await plan(2, 1e9);
    expect([await takes(), await takes()]).toEqual([[1e9], [1e9]]);
    await plan(1, 1);
    expect([await takes(), await takes()]).toEqual([[], [1]]);
  });

  describe("where a chunk is stored", () => {
    const none = { sent: 0, failed: 0, dropped: 0, failures: {}, others: [] };
    const part = {
      ...{ waitMs: 0, awaits: null, isRetry: true, retries: 0, reason: null, startsAnew: false, devices: [] },
      state: "READY" as const,
    };
    const done = { ...part, state: "DONE" as const };

    /** Plans a chunk and takes it. */
    async function take(devices: number) {
      const planned = await test.plan({ devices });
      const { db } = test;
      const processes = new Processes({ db, leases: db, logger: test.log.logger, released: () => undefined });
      const [chunk] = await new ChunkTaker(db, processes, "fcm").take(devices, { chunks: 1, retries: 1 }, []);
      if (!chunk) throw new Error("it was not taken");
      return { planned, chunk };
    }

    it("repeats nothing if the commit was not seen", async () => {
      const { planned, chunk } = await take(4);
      const [, , , four = 0] = planned.deviceIds;
      const open = { ...part, state: "TAKEN" as const, devices: [four] };
      const first = { ...none, write: 1, sent: 2, dropped: 1, kept: open };
      expect(await storeResults(test.db, chunk, first)).toMatchObject([{ state: "TAKEN", devices: 1 }]);
      expect(await storeResults(test.db, chunk, first)).toBeUndefined();
      expect(await test.chunks(planned)).toMatchObject([{ state: "TAKEN", sent: 2, dropped: 1, rest: 1 }]);
      const last = { ...none, write: 2, failed: 1, failures: { "400 INVALID_ARGUMENT": 1 }, kept: done };
      expect(await storeResults(test.db, chunk, last)).toMatchObject([{ state: "DONE" }]);
      expect(await storeResults(test.db, chunk, last)).toBeUndefined();
      expect(await test.chunks(planned)).toMatchObject([{ state: "DONE", sent: 2, dropped: 1, failed: 1 }]);
    });

    it("stores nothing of an attempt that has lost its chunk", async () => {
      const { planned, chunk } = await take(1);
      const result = { ...none, write: 1, sent: 1, kept: done };
      const other = { ...chunk, attempt: randomUUID() };
      await expect(storeResults(test.db, other, result)).rejects.toThrow(ChunkLostError);
      expect(await test.chunks(planned)).toMatchObject([{ state: "TAKEN", sent: 0, rest: 1 }]);
    });

    it("splits off once what goes on apart, if the commit was not seen", async () => {
      const { planned, chunk } = await take(5);
      const [, two = 0, three = 0, ...others] = planned.deviceIds;
      const result = {
        ...{
          ...none,
          write: 1,
          sent: 1,
          kept: { ...part, state: "WAITING" as const, devices: [two], waitMs: 60_000 },
        },
        others: [
          { ...part, devices: others, isRetry: false },
          { ...part, state: "DEAD" as const, devices: [three], reason: "500" },
        ],
      };
      for (let time = 0; time < 2; time += 1) await storeResults(test.db, chunk, result);
      expect(await test.chunks(planned)).toMatchObject([
        { state: "WAITING", planned: 2, sent: 1, rest: 1 },
        { state: "READY", planned: 2, sent: 0, rest: 2 },
        { state: "DEAD", planned: 1, sent: 0, rest: 1, reason: "500" },
      ]);
    });

    it("keeps since when those fail that are split off, whatever the others wait for", async () => {
      const { planned, chunk } = await take(2);
      const [waiting = 0, failing = 0] = planned.deviceIds;
      await storeResults(test.db, chunk, {
        ...{ ...none, write: 1, kept: { ...part, devices: [waiting], startsAnew: true } },
        others: [
          { ...part, state: "WAITING", devices: [failing], waitMs: 60_000, retries: 1, reason: "500" },
        ],
      });
      const since = await rows(
        test.db,
        sql`
          select retries, first_attempt_at is not null as "hasFailed" from push.delivery_chunks
          where notification_id = ${planned.notificationId}::uuid order by id`,
      );
      expect(since).toEqual([
        { retries: 0, hasFailed: false },
        { retries: 1, hasFailed: true },
      ]);
    });
  });
});
