/** What operators see of the providers, and what their decisions do; and why messages failed. */
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { createProviderControl } from "../../../src/push/delivery/provider-control.ts";
import { listFailures } from "../../../src/push/notifications/progress.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeliveryTest, type DeliveryTest, eventually, recordingProvider } from "./delivery-fixture.ts";

const moment = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

describe.each(backends)("the providers on %s", (backend) => {
  let test: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest(backend);
    cleanup.defer(() => test.close());
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
  });

  const control = () =>
    createProviderControl({ db: test.db, wakeUps: test.wakeUps, providers: ["fcm", "webpush"] });

  it("are listed with what they are paused for", async () => {
    const open = { state: "OPEN", reason: null, since: null, pausedUntil: null, origins: [] };
    const removals = { heldSince: null, waiting: 0 };
    expect(await control().list()).toEqual([
      { provider: "fcm", ...open, removals },
      { provider: "webpush", ...open, removals },
    ]);
    await test.pauseProvider({ cause: "foreign", seconds: 60 });
    await test.pauseProvider({ cause: "unavailable", seconds: null, service: "https://one.example" });
    const [fcm] = await control().list();
    expect(fcm).toEqual({
      ...{
        provider: "fcm",
        state: "REFUSED",
        reason: "a test",
        since: moment,
        pausedUntil: moment,
        removals,
      },
      origins: [
        {
          ...{ origin: "https://one.example", state: "PROBING", reason: "a test" },
          ...{ since: moment, pausedUntil: null },
        },
      ],
    });
  });

  it("send what waits promptly when their pause is ended, whatever is left of it", async () => {
    const provider = recordingProvider();
    let isRefused = true;
    provider.answer = () => (isRefused ? { kind: "refused", reason: "403 Forbidden" } : { kind: "sent" });
    const planned = await test.plan({ devices: 300, chunkSize: 100 });
    test.startWorker({ providers: [provider], rules: { refusedPauseMs: 3_000_000 } });
    await eventually(async () => (await control().list())[0]?.state === "REFUSED");
    isRefused = false;
    expect(await control().resume("fcm", undefined)).toMatchObject({ provider: "fcm", state: "PROBING" });
    const chunks = await test.until(planned, ["DONE"]);
    expect(chunks.map(({ sent, failed, retries }) => [sent, failed, retries])).toEqual(
      Array(3).fill([100, 0, 0]),
    );
    expect((await control().list())[0]).toMatchObject({ state: "OPEN", reason: null });
  });

  it("are paused again where they still refuse us after a pause was ended", async () => {
    const provider = recordingProvider();
    provider.answer = () => ({ kind: "refused", reason: "403 Forbidden" });
    const planned = await test.plan({ devices: 50 });
    test.startWorker({ providers: [provider], rules: { refusedPauseMs: 3_000_000, probeMessages: 3 } });
    await eventually(async () => (await control().list())[0]?.state === "REFUSED");
    await test.until(planned, ["READY", "WAITING"]);
    const before = provider.sent.length;
    await control().resume("fcm", undefined);
    await eventually(
      async () => provider.sent.length > before && (await control().list())[0]?.state === "REFUSED",
    );
    expect(provider.sent.length).toBe(before + 3);
    await test.setState(planned, "CANCELLED");
  });

  it("that are not in use are not there", async () => {
    const notFound = { kind: { code: "not_found" } };
    await expect(control().resume("apns", undefined)).rejects.toMatchObject(notFound);
    await expect(control().decideRemovals("apns", "confirm")).rejects.toMatchObject(notFound);
  });

  it("show how many removals wait, until an operator decides", async () => {
    const provider = recordingProvider();
    provider.answer = () => ({ kind: "dead", reason: "404 UNREGISTERED" });
    const planned = await test.plan({ devices: 70 });
    test.startWorker({ providers: [provider], settings: { removalDelaySeconds: 3_600 } });
    await test.until(planned, ["DONE"]);
    expect((await control().list())[0]?.removals).toEqual({ heldSince: moment, waiting: 70 });
    const decided = await control().decideRemovals("fcm", "discard");
    expect(decided.removals).toEqual({ heldSince: null, waiting: 0 });
  });

  it("say why messages failed, over all chunks and attempts", async () => {
    const planned = await test.plan({ devices: 40, chunkSize: 20 });
    const provider = recordingProvider();
    const seen = new Set<string>();
    provider.answer = ({ token }) => {
      const index = planned.tokens.indexOf(token);
      const isFirst = !seen.has(token);
      seen.add(token);
      if (index % 20 < 2) return { kind: "dead", reason: "404 UNREGISTERED" };
      if (index === 5) return { kind: "foreign", reason: "403 SENDER_ID_MISMATCH" };
      // Fails at the second attempt only.
      if (index % 20 === 7) {
        return isFirst
          ? { kind: "retry", reason: "500" }
          : { kind: "failed", reason: "400 INVALID_ARGUMENT" };
      }
      return index === 9 ? { kind: "failed", reason: "400 INVALID_ARGUMENT" } : { kind: "sent" };
    };
    test.startWorker({ providers: [provider] });
    await test.until(planned, ["DONE"]);
    const failures = (id: string) => listFailures(test.db, id);
    expect(await failures(planned.notificationId)).toEqual([
      { provider: "fcm", reason: "404 UNREGISTERED", devices: 4 },
      { provider: "fcm", reason: "400 INVALID_ARGUMENT", devices: 3 },
      { provider: "fcm", reason: "403 SENDER_ID_MISMATCH", devices: 1 },
    ]);
    await expect(failures("019aa4b1-9d3c-7a52-8c11-5be0a1f6d201")).rejects.toMatchObject({
      kind: { code: "notification_not_found" },
    });
  });
});
