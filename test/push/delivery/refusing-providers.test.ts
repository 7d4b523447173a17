/** What delivery does when providers refuse us, or some of their services do: pauses, alarms, and nothing lost. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { endPauses } from "../../../src/push/delivery/provider-pauses.ts";
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

describe.each(backends)("delivery to refusing providers on %s", (backend) => {
  let test: DeliveryTest;
  let provider: RecordingProvider;

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  beforeEach(() => {
    provider = recordingProvider();
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
  });

  describe("a provider that is many services", () => {
    const rules = {
      firstRetryMs: 60_000,
      longestRetryMs: 60_000,
      firstPauseMs: 60_000,
      longestPauseMs: 60_000,
    };
    /** Tokens name their service first, as in `down-1`. */
    const startWorkerOf = (services: RecordingProvider) => {
      const serviceOf = (token: string) => token.slice(0, token.indexOf("-"));
      return test.startWorker({ providers: [{ ...services, serviceOf }], rules });
    };
    const planOf = (devices: number, down: number) =>
      test.plan({
        devices,
        token: (index) => `${index < down ? "down" : "up"}-${String(index).padStart(40, "0")}`,
      });
    const pausedServices = async () =>
      (
        await rows<{ service: string }>(
          test.db,
          sql`select service from push.provider_states where paused_until > now() order by service`,
        )
      ).map(({ service }) => service);

    afterEach(() => test.db.execute(sql`delete from push.devices`));

    it("pauses the one that is down alone, and its devices go out promptly when it is resumed", async () => {
      const planned = await planOf(200, 60);
      let isDown = true;
      provider = recordingProvider(5);
      provider.answer = ({ token }) =>
        isDown && token.startsWith("down") ? { kind: "retry", reason: "503" } : { kind: "sent" };
      startWorkerOf(provider);
      await eventually(() => provider.sent.length > 0);
      const [chunk] = await test.until(planned, ["READY", "WAITING"]);
      expect(chunk).toMatchObject({ sent: 140, retries: 0 });
      expect(await pausedServices()).toEqual(["down"]);
      const tried = provider.sent.filter(({ token }) => token.startsWith("down")).length;
      expect(tried).toBeGreaterThanOrEqual(20);
      expect(tried).toBeLessThan(30);
      isDown = false;
      await endPauses(test.db, "fcm", "down");
      const chunks = await test.until(planned, ["DONE"]);
      expect(chunks.reduce((sum, { sent }) => sum + sent, 0)).toBe(200);
      expect(await pausedServices()).toEqual([]);
    });

    it("sends ten messages to one that was paused, and the rest once one of them is accepted", async () => {
      await test.pauseProvider({ cause: "unavailable", seconds: null, service: "down" });
      const planned = await planOf(100, 60);
      const probes = Promise.withResolvers<void>();
      provider.answer = async ({ token }) => {
        if (token.startsWith("down")) await probes.promise;
        return { kind: "sent" };
      };
      startWorkerOf(provider);
      await eventually(() => provider.sent.length === 50);
      expect(provider.sent.filter(({ token }) => token.startsWith("down"))).toHaveLength(10);
      probes.resolve();
      await test.until(planned, ["DONE"]);
      expect(provider.sent).toHaveLength(100);
    });

    it("judges by users whether one of them refuses us", async () => {
      const planned = await planOf(300, 150);
      provider.answer = ({ token }) =>
        token.startsWith("down") ? { kind: "foreign", reason: "403" } : { kind: "sent" };
      startWorkerOf(provider);
      await eventually(() => provider.sent.length > 0);
      const [chunk] = await test.until(planned, ["READY", "WAITING"]);
      expect(chunk).toMatchObject({ sent: 150, failed: 0, rest: 150, reason: "403" });
      expect(await pausedServices()).toEqual(["down"]);
      await test.setState(planned, "CANCELLED");
    });
  });

  describe("tokens of somebody else", () => {
    const isForeign = (tokens: readonly string[]) => {
      const foreign = new Set(tokens);
      provider.answer = ({ token }) =>
        foreign.has(token) ? { kind: "foreign", reason: "403 SENDER_ID_MISMATCH" } : { kind: "sent" };
    };

    it("of one user stop nobody, though they be all that is answered at first", async () => {
      const hostile = await test.plan({ devices: 60, users: 1 });
      isForeign(hostile.tokens);
      test.startWorker({ providers: [provider] });
      expect((await test.until(hostile, ["DONE"]))[0]).toMatchObject({ sent: 0, failed: 60 });
      const good = await test.plan({ devices: 100 });
      await test.until(good, ["DONE"]);
      expect((await rateRow(test))?.paused ?? false).toBe(false);
      const kept = await rows(
        test.db,
        sql`select 1 from push.devices where id = any(${`{${hostile.deviceIds.join(",")}}`}::bigint[])`,
      );
      expect(kept).toHaveLength(60);
    });

    it("of most users mean that we are refused: nothing fails, and all is sent when it is put right", async () => {
      const planned = await test.plan({ devices: 400 });
      isForeign(planned.tokens);
      test.startWorker({ providers: [provider], rules: { refusedPauseMs: 60_000 } });
      await eventually(async () => (await rateRow(test))?.paused === true);
      const [chunk] = await test.until(planned, ["READY", "WAITING"]);
      expect(chunk).toMatchObject({ sent: 0, failed: 0, rest: 400, retries: 0 });
      const told = test.log.lines().filter(({ level }) => level === "error");
      expect(told.at(-1)).toMatchObject({ provider: "fcm", reason: "403 SENDER_ID_MISMATCH" });
      const tried = new Set(provider.sent.map(({ token }) => token));
      isForeign([]);
      const before = provider.sent.length;
      await endPauses(test.db, "fcm");
      expect((await test.until(planned, ["DONE"]))[0]).toMatchObject({ sent: 400, failed: 0 });
      // Who was refused is at the back, so the probe was of others.
      for (const { token } of provider.sent.slice(before, before + 10)) expect(tried.has(token)).toBe(false);
    });
  });

  it("takes a refusal for the message's own failure where a self-test passes", async () => {
    const planned = await test.plan({ devices: 40 });
    let tests = 0;
    provider.answer = ({ token }) =>
      planned.tokens.indexOf(token) < 5
        ? { kind: "refused", reason: "403 PERMISSION_DENIED" }
        : { kind: "sent" };
    const selfTest = async () => {
      tests += 1;
      return { kind: "sent" } as const;
    };
    const rules = { firstRetryMs: 10, longestRetryMs: 20, maxRetries: 1 };
    test.startWorker({ providers: [{ ...provider, selfTest }], rules });
    const [dead] = await test.until(planned, ["DEAD"]);
    expect(dead).toMatchObject({ sent: 35, failed: 0, rest: 5, reason: "403 PERMISSION_DENIED" });
    // One at the start, and one for those of an attempt that are refused together.
    expect(tests).toBeLessThanOrEqual(5);
    expect((await rateRow(test))?.paused ?? false).toBe(false);
  });

  it("asks the provider itself at start, and sends nothing while it refuses us", async () => {
    const planned = await test.plan({ devices: 40 });
    let outcome: Outcome = { kind: "refused", reason: "401 UNAUTHENTICATED" };
    test.startWorker({ providers: [{ ...provider, selfTest: async () => outcome }] });
    await eventually(async () => (await rateRow(test))?.paused === true);
    await test.stopWorkers();
    const sentBefore = provider.sent.length;
    // The credentials are put right, and the process is started again: the pause ends at once.
    outcome = { kind: "sent" };
    await test.db.execute(sql`update push.provider_states set paused_until = now() + interval '1 hour'`);
    test.startWorker({ providers: [{ ...provider, selfTest: async () => outcome }] });
    await test.until(planned, ["DONE"]);
    expect(provider.sent.length).toBe(Math.max(40, sentBefore));
  });

  it("raises the alarm where the provider refuses us; nothing is counted, removed or lost", async () => {
    const planned = await test.plan({ devices: 50 });
    let isRefused = true;
    provider = recordingProvider(1);
    provider.answer = (_, nth) => {
      if (!isRefused) return { kind: "sent" };
      return nth === 1
        ? { kind: "dead", reason: "404 UNREGISTERED" }
        : { kind: "refused", reason: "403 SENDER" };
    };
    test.startWorker({ providers: [provider], rules: { refusedPauseMs: 700 } });
    await eventually(async () => (await rateRow(test))?.paused === true);
    const [chunk] = await test.until(planned, ["READY", "WAITING"]);
    expect(chunk).toMatchObject({ sent: 0, failed: 1, rest: 49, retries: 0, reason: "403 SENDER" });
    const devices = await rows(
      test.db,
      sql`select 1 from push.devices where id = any(${`{${planned.deviceIds.join(",")}}`}::bigint[])`,
    );
    expect(devices).toHaveLength(50);
    expect(test.log.lines().find(({ reason }) => reason === "403 SENDER")).toMatchObject({ level: "error" });
    isRefused = false;
    const sentBefore = provider.sent.length;
    const [done] = await test.until(planned, ["DONE"]);
    expect(done).toMatchObject({ sent: 49, failed: 1 });
    expect(provider.sent.length - sentBefore).toBe(49);
  });
});
