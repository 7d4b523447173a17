/** Which of a chunk's messages begin, and when: at their times, as far as there is room and the chunk is checked. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { createMetrics } from "../../../src/platform/observability/metrics.ts";
import { createDeliveryMetrics } from "../../../src/push/delivery/delivery-report.ts";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { Flow } from "../../../src/push/delivery/flow.ts";
import { InFlightBudget } from "../../../src/push/delivery/in-flight-budget.ts";
import { prepareContent } from "../../../src/push/delivery/prepare-content.ts";
import { SelfTest } from "../../../src/push/delivery/service-states.ts";
import type { Outcome } from "../../../src/push/providers/provider.ts";
import { captureLog } from "../../support/captured-log.ts";
import { recordingProvider } from "./delivery-fixture.ts";

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "setTimeout", "clearTimeout"] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** The flow of a chunk of 100 messages, which are answered when the test says so. */
function createFlow({ room = 100, isRetry = false } = {}) {
  const provider = recordingProvider(room);
  const answers: (() => void)[] = [];
  provider.answer = () => new Promise<Outcome>((resolve) => answers.push(() => resolve({ kind: "sent" })));
  const dependencies = {
    provider,
    budget: new InFlightBudget(room, 1),
    states: {
      admits: () => true,
      report: () => undefined,
      state: () => "working" as const,
      selfTest: new SelfTest(provider),
    },
    rules: { ...deliveryRules, maxUncheckedMs: 1_000, sliceMs: 500, tickMs: 5 },
    logger: captureLog().logger,
    metrics: createDeliveryMetrics(createMetrics("gatepost", "1.2.3"), ["fcm"]),
  };
  const notification = {
    ...{
      id: "n",
      title: "Title",
      message: "Message",
      image: null,
      isOneChunk: true,
      keepsOutcomes: false,
      maxPerSecond: null,
    },
    ...({ expiresAt: 0, acceptedAt: 0, content: null, priority: "high", collapseId: null } as const),
  };
  const ids = Array.from({ length: 100 }, (_, id) => id);
  const devices = ids.map((id) => ({
    ...{ id, userId: `${id}`, token: `${id}`, renewedAt: 0, service: "", reader: null },
  }));
  const chunk = {
    ...{ id: 1, attempt: "a", notificationId: "n", notification, devices, isRetry, turn: 0, left: 100 },
    ...{ failures: {}, retries: 0, reason: null, ageMs: 0, share: 1, trace: undefined },
    asOf: performance.now(),
  };
  const sendTo = prepareContent(provider, chunk, undefined);
  const next = vi.fn();
  const flow = new Flow(dependencies, chunk, sendTo, devices, next);
  /** Lets time pass. @returns how many messages have begun by then */
  const begunAfter = (ms: number) => {
    vi.advanceTimersByTime(ms);
    return provider.sent.length;
  };
  const check = () => {
    flow.confirm(performance.now());
    return provider.sent.length;
  };
  return { flow, next, begunAfter, check, answer: () => answers.shift()?.() };
}

/** Whether it resolves without anything else. */
async function isOver(promise: Promise<void>): Promise<boolean> {
  let isOver = false;
  void promise.then(() => {
    isOver = true;
  });
  await new Promise(setImmediate);
  return isOver;
}

/** Ten messages a second. */
const tenSeconds = { messages: 100, startMs: 0, endMs: 10_000 };

describe("messages that have a time", () => {
  test("begin at it, and not before", async () => {
    const { flow, begunAfter, check } = createFlow();
    const begun = flow.begin({ messages: 20, startMs: 500, endMs: 2_500 });
    expect([begunAfter(0), begunAfter(499), begunAfter(2), begunAfter(98), begunAfter(6)]).toEqual([
      0, 0, 1, 1, 2,
    ]);
    for (let elapsed = 0; elapsed < 2_000; elapsed += 500) {
      expect(await isOver(begun)).toBe(false);
      begunAfter(500);
      check();
    }
    expect([begunAfter(0), await isOver(begun)]).toEqual([20, true]);
  });

  test("wait for a check of their chunk, and begin with it", () => {
    const { flow, begunAfter, check } = createFlow();
    void flow.begin(tenSeconds);
    expect([begunAfter(950), begunAfter(500)]).toEqual([10, 10]);
    expect(check()).toBe(15);
  });

  test("lose it if no check came in time, all of them, and do not begin together", async () => {
    const { flow, begunAfter, check } = createFlow();
    const begun = flow.begin(tenSeconds);
    expect(begunAfter(1_600)).toBe(10);
    expect(await isOver(begun)).toBe(false);
    expect([check(), await isOver(begun), flow.begun]).toEqual([10, true, 10]);
    expect([check(), begunAfter(500)], "they have no time any more").toEqual([10, 10]);
    void flow.begin(tenSeconds);
    expect(begunAfter(0)).toBe(11);
  });

  test("keep it while there is no room, and begin one by one as there is", async () => {
    const { flow, begunAfter, check, answer } = createFlow({ room: 2 });
    const begun = flow.begin({ messages: 4, startMs: 0, endMs: 40 });
    for (let elapsed = 0; elapsed < 3_000; elapsed += 500) {
      begunAfter(500);
      expect(check()).toBe(2);
    }
    answer();
    expect([await isOver(begun), begunAfter(0)]).toEqual([false, 3]);
    answer();
    expect([await isOver(begun), begunAfter(0)]).toEqual([true, 4]);
    const responded = flow.responded();
    answer();
    expect(await isOver(responded)).toBe(false);
    answer();
    expect(await isOver(responded)).toBe(true);
  });

  test("begin no more after a stop", async () => {
    const { flow, begunAfter, check } = createFlow();
    const begun = flow.begin(tenSeconds);
    expect(begunAfter(250)).toBe(3);
    flow.stop("ending");
    flow.stop("lost");
    expect([await isOver(begun), begunAfter(500), check(), flow.stopReason]).toEqual([true, 3, 3, "ending"]);
  });
});

describe("the next chunk may be loaded", () => {
  test("a little before the last message is due", () => {
    const { flow, next, begunAfter, check } = createFlow({ room: 1_000 });
    void flow.begin({ messages: 100, startMs: 0, endMs: 1_000 });
    begunAfter(800);
    expect(next).not.toHaveBeenCalled();
    check();
    begunAfter(150);
    expect(next).toHaveBeenCalled();
  });

  test.each([
    [true, "when those that were tried before wait for room"],
    [false, "not when others do"],
  ])("%s: %s", (isRetry) => {
    const { flow, next } = createFlow({ room: 2, isRetry });
    void flow.begin({ messages: 100, startMs: 0, endMs: 0 });
    expect(next).toHaveBeenCalledTimes(isRetry ? 1 : 0);
  });
});
