/** The time that admitted requests wait for their start, with a clock that the test moves. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Admission } from "../../../src/platform/door/admission.ts";
import { captureLog } from "../../support/captured-log.ts";

let now = 0;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setImmediate"] });
  vi.spyOn(performance, "now").mockImplementation(() => now);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

it("is observed, for those that start at once and for those that wait", () => {
  const waits: [string, number][] = [];
  const { logger } = captureLog();
  const observer = {
    inFlight() {},
    waited: (priority: string, seconds: number) => void waits.push([priority, seconds]),
    shed() {},
  };
  const admission = new Admission({ logger, observer });
  for (let n = 0; n < 100; n += 1) {
    const request = { service: "sample", priority: "normal" } as const;
    const admitted = admission.enter(request, { isComplete: () => true, onComplete() {} });
    admission.start(admitted ?? expect.fail("refused"), () => undefined);
  }
  expect(waits).toEqual(Array(64).fill(["normal", 0]));
  now += 20;
  vi.advanceTimersByTime(20);
  expect(waits.slice(64)).toEqual(Array(36).fill(["normal", 0.02]));
});
