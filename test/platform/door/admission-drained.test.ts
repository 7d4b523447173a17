/** What shedding remembers of an overload once all of its requests have their responses, with a clock of the test. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Admission, type Admitted } from "../../../src/platform/door/admission.ts";
import { captureLog } from "../../support/captured-log.ts";

let now = 0;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "setImmediate"] });
  vi.spyOn(performance, "now").mockImplementation(() => now);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

function pass(ms: number): void {
  now += ms;
  vi.advanceTimersByTime(ms);
}

it("a burst after an overload that has drained is not refused", () => {
  const { logger } = captureLog();
  const admission = new Admission({ logger, observer: { inFlight() {}, waited() {}, shed() {} } });
  const inFlight: Admitted[] = [];
  /** @returns how many of so many requests, which come at once, are refused */
  const refusedOf = (count: number) => {
    let refused = 0;
    for (let n = 0; n < count; n += 1) {
      const whole = { isComplete: () => true, onComplete() {} };
      const admitted = admission.enter({ service: "sample", priority: "normal" }, whole);
      if (admitted) inFlight.push(admitted);
      else refused += 1;
    }
    return refused;
  };
  const respond = () => {
    for (const admitted of inFlight.splice(0)) {
      admission.respond(admitted);
      admission.leave(admitted);
    }
  };
  // Three windows in which no response is prompt.
  for (let n = 0; n < 3; n += 1) {
    expect(refusedOf(100)).toBe(0);
    pass(150);
  }
  expect(refusedOf(1_000)).toBeGreaterThan(0);
  respond();
  pass(20);
  expect(inFlight).toEqual([]);
  expect(refusedOf(1_000)).toBe(0);
});
