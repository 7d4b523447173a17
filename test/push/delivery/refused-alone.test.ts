/** One of two processes is at fault: it leaves the messages to the other, nothing is lost, and it recovers by itself. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { Outcome } from "../../../src/push/providers/provider.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import {
  createDeliveryTest,
  type DeliveryTest,
  eventually,
  type RecordingProvider,
  rateRow,
  recordingProvider,
} from "./delivery-fixture.ts";

const wrongKey: Outcome = { kind: "refused", isConfirmed: true, reason: "403 InvalidProviderToken" };
const noRoute: Outcome = { kind: "unavailable", hasNoResponse: true, reason: "EHOSTUNREACH" };
const otherKey: Outcome = { kind: "foreign", reason: "403" };
const failing: Outcome = { kind: "unavailable", reason: "OAuth: 503" };
const rules = { firstPauseMs: 100, longestOwnPauseMs: 300, refusedPauseMs: 500, longestPauseMs: 500 };

// An embedded database has one process.
describe.runIf(backends.includes("PostgreSQL"))("a process at fault", () => {
  let test: DeliveryTest;
  let faulty: RecordingProvider;
  let sound: RecordingProvider;

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest("PostgreSQL");
    cleanup.defer(() => test.close());
  });
  beforeEach(() => {
    [faulty, sound] = [recordingProvider(), recordingProvider()];
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
  });

  const start = (provider: RecordingProvider, more: object = {}) =>
    test.startWorker({ providers: [{ ...provider, ...more }], rules });
  const unusable = () => rows(test.db, sql`select unnest(unusable) from push.processes`);
  /** The other process is there: it has its row. */
  const startSound = async (more: object = {}) => {
    const worker = start(sound, more);
    const planned = await test.plan({ devices: 1, token: () => `a-first-${Math.random()}` });
    await test.until(planned, ["DONE"]);
    return worker;
  };

  it.each([
    ["a wrong key", wrongKey, "credentials"],
    ["no route", noRoute, "network"],
  ])(
    "with %s leaves its chunks to the other, and uses the provider again when it can",
    async (_, failure, cause) => {
      await startSound();
      let outcome: Outcome = failure;
      faulty.answer = () => outcome;
      const worker = start(faulty);
      const planned = await test.plan({ devices: 2_000, chunkSize: 10 });
      await eventually(() => worker.warnings().length > 0);
      expect(worker.warnings()).toEqual([
        { name: "push fcm", reason: expect.stringContaining(`${cause}: `) },
      ]);
      const chunks = await test.until(planned, ["DONE"]);
      expect(chunks.reduce((sum, { sent }) => sum + sent, 0)).toBe(2_000);
      expect(Math.max(...chunks.map(({ retries }) => retries))).toBe(0);
      expect((await rateRow(test))?.failures ?? 0).toBe(0);
      outcome = { kind: "sent" };
      const begun = faulty.sent.length;
      await eventually(async () => {
        const more = await test.plan({ devices: 20, chunkSize: 1 });
        await test.until(more, ["DONE"]);
        return worker.warnings().length === 0;
      });
      await eventually(async () => (await unusable()).length === 0);
      expect(faulty.sent.length).toBeGreaterThan(begun);
    },
  );

  it("is told apart from a provider that fails", async () => {
    await startSound();
    faulty.answer = () => failing;
    const worker = start(faulty);
    await test.plan({ devices: 2_000, chunkSize: 10 });
    await eventually(async () => (await rateRow(test))?.reason === "OAuth: 503");
    expect(worker.warnings()).toEqual([]);
  });

  it("asks by its self-test before it takes anything, also while nothing is to be sent", async () => {
    await startSound();
    let outcome: Outcome = { kind: "refused", isOfTime: true, reason: "OAuth: 400 invalid_grant" };
    const worker = start(faulty, { selfTest: async () => outcome });
    await eventually(() => worker.warnings().length > 0);
    const reason = "clock: OAuth: 400 invalid_grant";
    expect(worker.warnings()).toEqual([{ name: "push fcm", reason }]);
    const planned = await test.plan({ devices: 100, chunkSize: 10 });
    await test.until(planned, ["DONE"]);
    expect(faulty.sent).toEqual([]);
    outcome = { kind: "sent" };
    await eventually(() => worker.warnings().length === 0);
    expect((await rateRow(test))?.failures ?? 0).toBe(0);
  });

  it("and the other as well make it the provider's pause, which the first that can ends", async () => {
    let outcome: Outcome = wrongKey;
    const selfTest = async () => outcome;
    const workers = [start(faulty, { selfTest }), start(sound, { selfTest: async () => wrongKey })];
    await eventually(async () => (await rateRow(test))?.paused === true);
    for (const worker of workers) expect(worker.warnings()).toHaveLength(1);
    const planned = await test.plan({ devices: 100, chunkSize: 10 });
    outcome = { kind: "sent" };
    await test.until(planned, ["DONE"]);
    expect(sound.sent).toEqual([]);
    await eventually(() => workers[1]?.warnings().length === 1);
  });

  it("with the key of another project probes with few messages, though its self-test passes", async () => {
    await startSound();
    faulty.answer = () => otherKey;
    const worker = start(faulty, { selfTest: async () => ({ kind: "sent" }) });
    await eventually(async () => {
      await test.plan({ devices: 100, chunkSize: 10 });
      return worker.warnings().length > 0;
    });
    const judged = faulty.sent.length;
    for (let sends = 0; sends < 10; sends += 1)
      await test.until(await test.plan({ devices: 200, chunkSize: 10 }), ["DONE"]);
    expect(worker.warnings()).toEqual([{ name: "push fcm", reason: "credentials: 403" }]);
    // Ten in each probe, where a process that had been let back in would have tried fifty users' again.
    expect(faulty.sent.length - judged).toBeLessThan(100);
  });

  it("of Web Push has its own pauses of push services, and takes nothing if none responds to it", async () => {
    const serviceOf = (token: string) => token.slice(0, 1);
    await startSound({ serviceOf });
    faulty.answer = () => otherKey;
    const worker = start(faulty, { serviceOf });
    const token = (index: number) => `${"ab"[index % 2]}-${Math.random()}-${index}`;
    const planned = await test.plan({ devices: 4_000, chunkSize: 400, token });
    await eventually(() => worker.warnings().length === 2);
    const names = worker.warnings().map(({ name }) => name);
    expect(names.toSorted()).toEqual(["push a", "push b"]);
    const chunks = await test.until(planned, ["DONE"]);
    // Whose fault it is shows in fifty users of each service.
    expect(chunks.reduce((sum, { failed }) => sum + failed, 0)).toBeLessThan(400);
    const paused = await rows(test.db, sql`select 1 from push.provider_states where cause is not null`);
    expect(paused).toEqual([]);
  });
});
