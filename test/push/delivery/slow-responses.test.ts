/** Messages that wait for their answers: what goes on meanwhile, and what is stored of their chunks. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Job } from "../../../src/platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue, retryPriority } from "../../../src/push/database.ts";
import { type TakenChunk, takeChunk } from "../../../src/push/delivery/chunk-repository.ts";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import type { NextTry } from "../../../src/push/delivery/next-try.ts";
import { settleChunk, storeOutcomes } from "../../../src/push/delivery/settle-chunk.ts";
import type { Outcome } from "../../../src/push/providers/provider.ts";
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
    await test.db.execute(sql`
      with tried as (
        update push.delivery_chunks set comes_last = true where notification_id = ${notificationId}::uuid returning job_id
      )
      update push_jobs.job set priority = ${retryPriority}::int where id in (select job_id from tried)`);
  }

  it("keep no other message waiting, and those that came are stored", async () => {
    const planned = await test.plan({ devices: 150, chunkSize: 50 });
    const { provider, answerLate } = slowProvider(20, (token) => token === planned.tokens[7]);
    test.startWorker({ providers: [provider] });
    await eventually(
      async () => (await test.chunks(planned)).reduce((sum, one) => sum + one.sent, 0) === 149,
    );
    const [first, ...others] = await test.chunks(planned);
    expect(first).toMatchObject({ state: "SENDING", sent: 49, rest: 1, attempt: 1 });
    expect(others).toMatchObject([{ state: "DONE" }, { state: "DONE" }]);
    const left = await rows(
      test.db,
      sql`select device_ids[1]::int as id from push.delivery_chunks where id = ${planned.chunkIds[0]}::bigint`,
    );
    expect(left).toEqual([{ id: planned.deviceIds[7] }]);
    answerLate();
    const [ended] = await test.until(planned, ["DONE"]);
    expect(ended).toMatchObject({ sent: 50, rest: 0, attempt: 1, retries: 0 });
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
    expect(await test.chunks(planned)).toMatchObject([{ state: "SENDING" }]);
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
          select extract(epoch from next_at - clock_timestamp())::float8 as seconds from push.provider_paces
          where provider = 'fcm' and service = ''`,
      );
      ahead.push(pace?.seconds ?? 0);
      return provider.sent.length > 30;
    });
    // A chunk is half a second of the rate, and two may have reserved theirs: the one that is sent and the next.
    expect(Math.max(...ahead)).toBeLessThan(2);
    await test.setState(silent, "CANCELLED");
  });

  describe("where a chunk is stored", () => {
    const dependencies = () => ({
      ...{ db: test.db, jobs: test.jobs, provider: "fcm" as const },
      limits: { ...deliveryRules, maxDeadPercent: 0, leastDead: 0 },
    });
    const nextTry = {
      ...{ afterMs: 0, services: [], endsWithResponse: false, isRetry: true, retries: 0 },
      ...{ reason: null, giveUp: false },
    };
    const counts = { sent: 0, failed: 0, dropped: 0, dead: 0, failures: new Map() };

    /** Plans a chunk and takes it, as a worker does that has fetched its job. */
    async function take(devices: number): Promise<Taken> {
      const planned = await test.plan({ devices });
      const [row] = await rows<{ id: string }>(
        test.db,
        sql`
          update push_jobs.job set state = 'active', started_on = now()
          where id = (select job_id from push.delivery_chunks where id = ${planned.chunkIds[0]}::bigint)
          returning id::text`,
      );
      const job: Job<DeliveryJob> = {
        ...{ id: row?.id ?? "", queue: deliveryQueue("fcm"), data: { chunkId: planned.chunkIds[0] ?? 0 } },
        ...{ retryCount: 0, priority: 0, failedId: null },
      };
      const chunk = await takeChunk(test.db, "fcm", job);
      if (!chunk) throw new Error("it was not taken");
      return { planned, job, chunk };
    }

    it("repeats nothing if the commit was not seen", async () => {
      const { planned, job, chunk } = await take(4);
      const [one, two, three, four] = planned.deviceIds;
      const rest = { devices: [], jobId: randomUUID() };
      const first = {
        counts: { ...counts, sent: 2, dropped: 1 },
        responses: { users: new Map([["user-1", true]]), sent: [Number(one)], dead: [] },
        open: [four ?? 0],
        rest,
      };
      for (let time = 0; time < 2; time += 1) await storeOutcomes(dependencies(), job, chunk, first);
      expect(await test.chunks(planned)).toMatchObject([{ state: "SENDING", sent: 2, dropped: 1, rest: 1 }]);
      const responses = { users: new Map([["user-1", true]]), sent: [one, two, three].map(Number), dead: [] };
      const failures = new Map([["400 INVALID_ARGUMENT", 1]]);
      const last = { counts: { ...counts, sent: 2, dropped: 1, failed: 1, failures }, responses, tries: [] };
      await settleChunk(dependencies(), job, chunk, last);
      expect(await test.chunks(planned)).toMatchObject([{ state: "DONE", sent: 2, dropped: 1, failed: 1 }]);
      expect(await test.openJobs()).toBe(0);
      const answered = await rows(
        test.db,
        sql`select answered_users as users, answered_dead as "deadUsers" from push.provider_answers order by id`,
      );
      expect(answered, "each user counts once").toEqual([
        { users: 1, deadUsers: 0 },
        { users: 1, deadUsers: 0 },
      ]);
    });

    it("reports the same if the commit that settles was not seen", async () => {
      const { planned, job, chunk } = await take(3);
      const [one = 0, two = 0, three = 0] = planned.deviceIds;
      const tries: NextTry[] = [
        { ...nextTry, devices: [two], afterMs: 60_000, retries: 1, reason: "500" },
        { ...nextTry, devices: [three], reason: "500", giveUp: true },
      ];
      const responses = { users: new Map([["user-1", true]]), sent: [one], dead: [] };
      const result = { counts: { ...counts, sent: 1 }, responses, tries };
      const attempted = {};
      const settled = await settleChunk(dependencies(), job, chunk, result, attempted);
      expect(settled.dead).toMatchObject([{ devices: 1, reason: "500" }]);
      const chunks = await test.chunks(planned);
      expect(await settleChunk(dependencies(), job, chunk, result, attempted)).toEqual(settled);
      expect(await test.chunks(planned)).toEqual(chunks);
      // Another worker's results are none of this one's.
      await test.db.execute(
        sql`update push.delivery_chunks set attempt = attempt + 1 where id = ${chunk.id}::bigint`,
      );
      await expect(settleChunk(dependencies(), job, chunk, result, attempted)).rejects.toThrow(
        "another worker",
      );
    });

    it("splits the rest off once, if the commit was not seen", async () => {
      const { planned, job, chunk } = await take(5);
      const [, two = 0, ...devices] = planned.deviceIds;
      const rest = { devices, jobId: randomUUID() };
      const result = { counts: { ...counts, sent: 1 }, responses: undefined, open: [two], rest };
      for (let time = 0; time < 2; time += 1) await storeOutcomes(dependencies(), job, chunk, result);
      expect(await test.chunks(planned)).toMatchObject([
        { state: "SENDING", planned: 2, sent: 1, rest: 1 },
        { state: "PENDING", planned: 3, sent: 0, rest: 3 },
      ]);
      expect(await test.openJobs()).toBe(2);
    });

    it("keeps since when those fail that are split off, whatever the others wait for", async () => {
      const { planned, job, chunk } = await take(2);
      await test.pauseProvider({ cause: "unavailable", seconds: 60 });
      const [waiting = 0, failing = 0] = planned.deviceIds;
      const tries: NextTry[] = [
        { ...nextTry, devices: [waiting], services: [""] },
        { ...nextTry, devices: [failing], afterMs: 60_000, retries: 1, reason: "500" },
      ];
      await settleChunk(dependencies(), job, chunk, { counts, responses: undefined, tries });
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

    it("keeps apart what was tried, which comes last when the notification is resumed, and after that too", async () => {
      const { planned, job, chunk } = await take(3);
      const [fresh = 0, ...failing] = planned.deviceIds;
      await test.pause(planned);
      const tries: NextTry[] = [
        { ...nextTry, devices: [fresh], isRetry: false },
        ...failing.map((id) => ({ ...nextTry, devices: [id], retries: 1, reason: "500" })),
      ];
      await settleChunk(dependencies(), job, chunk, { counts, responses: undefined, tries });
      expect(await test.chunks(planned)).toMatchObject([
        { state: "PARKED", rest: 1, reason: null },
        { state: "PARKED", rest: 2, reason: "500" },
      ]);
      await test.resume(planned);
      const priorities = await rows<{ priority: number }>(
        test.db,
        sql`
          select j.priority from push.delivery_chunks c join push_jobs.job j on j.id = c.job_id
          where c.notification_id = ${planned.notificationId}::uuid order by c.id`,
      );
      expect(priorities.map(({ priority }) => priority)).toEqual([-1, retryPriority - 2]);
    });

    it.runIf(backend === "PostgreSQL")("waits for no lock that waits for its own", async () => {
      const taken = [await take(2), await take(2)];
      await test.pauseProvider({ cause: "unavailable", seconds: 60 });
      // Each has a pool of its own: one of this size does one transaction at a time.
      const pools = await Promise.all([1, 2, 3].map(() => test.database.open()));
      const [other = { db: test.db }, ...own] = pools;
      const gate = Promise.withResolvers<void>();
      const locked = Promise.withResolvers<void>();
      const holding = other.db.transaction(async (tx) => {
        await tx.execute(sql`select from push.provider_paces for update`);
        locked.resolve();
        await gate.promise;
      });
      await locked.promise;
      const settling = taken.map(({ planned, job, chunk }, index) => {
        const [deviceId = 0, waiting = 0] = planned.deviceIds;
        const dead = [{ deviceId, userId: "user-1", asOf: Date.now() }];
        const responses = { users: new Map([["user-1", false]]), sent: [], dead };
        const tries = [{ ...nextTry, devices: [waiting], services: [""] }];
        const dying = { ...counts, failed: 1, dead: 1 };
        const where = { ...dependencies(), db: own[index]?.db ?? test.db };
        return settleChunk(where, job, chunk, { counts: dying, responses, tries });
      });
      // Both wait for the provider's row, the first of them to write it as well.
      const isWaiting = sql`select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
      await eventually(async () => (await rows(other.db, isWaiting)).length === 2);
      gate.resolve();
      await holding;
      // A deadlock would end one of them with an error.
      expect((await Promise.all(settling)).map(({ isOver }) => isOver)).toEqual([false, false]);
    });
  });
});

interface Taken {
  readonly planned: Planned;
  readonly job: Job<DeliveryJob>;
  readonly chunk: TakenChunk;
}
