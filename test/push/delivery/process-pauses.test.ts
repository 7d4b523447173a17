/** How long a process leaves messages to others for a fault that may be its own, and what ends that. */
import { describe, expect, test } from "vitest";
import type { SharedState } from "../../../src/push/delivery/breaker.ts";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { ProcessPauses } from "../../../src/push/delivery/process-pauses.ts";

const pausesOf = () => new ProcessPauses(deliveryRules, () => 0);
const refused = { cause: "refused", reason: "401", afterMs: 0 } as const;
const away = { cause: "unavailable", reason: "ECONNREFUSED", afterMs: 0 } as const;
const open: SharedState = { cause: undefined, pausedMs: 0, since: "" };
const pausedFor = (pausedMs: number): SharedState => ({ cause: "refused", pausedMs, since: "1" });

describe("a process that cannot use a service", () => {
  test("tries again after longer and longer, up to half a minute", () => {
    const pauses = pausesOf();
    let now = 0;
    const waits = Array.from({ length: 6 }, () => {
      const { until } = pauses.add("", "credentials", refused, now);
      const waitMs = until - now;
      now = until;
      return waitMs;
    });
    expect(waits).toEqual([5_000, 10_000, 20_000, 30_000, 30_000, 30_000]);
  });

  test("tries no later for what fails meanwhile, unless that is something else", () => {
    const pauses = pausesOf();
    const { until } = pauses.add("", "network", away, 0);
    expect(pauses.add("", "network", away, 1_000)).toMatchObject({ until, failures: 1 });
    expect(pauses.add("", "clock", refused, 2_000)).toMatchObject({
      until: 7_000,
      failures: 1,
      fault: "clock",
    });
  });

  test("is paused by itself while the service works for others, and then to be probed", () => {
    const pauses = pausesOf();
    pauses.add("", "credentials", refused, 0);
    expect(pauses.stateOf("", open, 1_000)).toMatchObject({ cause: "refused", pausedMs: 4_000 });
    expect(pauses.stateOf("", open, 6_000)).toMatchObject({ cause: "refused", pausedMs: 0 });
    expect(pauses.stateOf("other", open, 1_000)).toBe(open);
    expect(pauses.own()).toHaveLength(1);
  });

  test("is not alone while all are paused, and tries at once when another has ended that", () => {
    const pauses = pausesOf();
    pauses.add("", "credentials", refused, 0);
    const shared = pausedFor(300_000);
    expect(pauses.stateOf("", shared, 1_000)).toBe(shared);
    expect(pauses.own()).toEqual([]);
    expect(pauses.stateOf("", open, 2_000)).toMatchObject({ cause: "refused", pausedMs: 0 });
    expect(pauses.own()).toHaveLength(1);
  });

  test("tries no later than when the pause of all is over", () => {
    const pauses = pausesOf();
    const { until } = pauses.add("", "network", { ...away, afterMs: 20_000 }, 0);
    expect(until).toBe(20_000);
    pauses.stateOf("", pausedFor(3_000), 0);
    expect(pauses.get("")).toMatchObject({ until: 3_000 });
  });

  test("is over when it ends", () => {
    const pauses = pausesOf();
    pauses.add("", "credentials", refused, 0);
    pauses.end("");
    expect(pauses.stateOf("", open, 0)).toBe(open);
    expect(pauses.size).toBe(0);
  });
});
