/** When a service is paused, and what shows that it works again. */
import { describe, expect, test } from "vitest";
import { Breaker, type Cause, type Failure } from "../../../src/push/delivery/breaker.ts";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import type { Outcome } from "../../../src/push/providers/provider.ts";

const rules = {
  ...deliveryRules,
  retriesInARow: 3,
  probeMessages: 2,
  firstPauseMs: 1_000,
  evidenceMs: 10_000,
};
const sent: Outcome = { kind: "sent" };
const retry: Outcome = { kind: "retry", reason: "503" };
const own: Outcome = { kind: "retry", isOwn: true, reason: "429" };
const away: Outcome = { kind: "unavailable", afterMs: 7_000, reason: "429" };
const refused: Outcome = { kind: "refused", reason: "401" };
const foreign: Outcome = { kind: "foreign", reason: "403" };
const failed: Outcome = { kind: "failed", reason: "400" };

/** Reports outcomes at one moment, each of another user. @returns the last verdict */
function reported(breaker: Breaker, outcomes: readonly Outcome[], now = 0): Failure | "works" | undefined {
  const first = { at: now, isRetry: false };
  return outcomes.map((outcome, index) => breaker.report(outcome, `user-${index}`, now, first)).at(-1);
}

function probing(cause: Cause): Breaker {
  const breaker = new Breaker(rules);
  breaker.share({ cause, pausedMs: 0, since: "1" }, 0);
  return breaker;
}

describe("a service that is open", () => {
  test.each<[string, Outcome[], Failure | undefined]>([
    ["is not paused for two failures", [retry, retry], undefined],
    ["is for three in a row", [retry, retry, retry], { cause: "unavailable", afterMs: 0, reason: "503" }],
    ["is not where it answers in between", [retry, retry, failed, retry, retry], undefined],
    ["is not for what is a device's own", [own, own, own, own], undefined],
    [
      "is at once where it is over quota",
      [sent, away],
      { cause: "unavailable", afterMs: 7_000, reason: "429" },
    ],
    ["is at once where it refuses us", [sent, refused], { cause: "refused", afterMs: 0, reason: "401" }],
    [
      "is paused for the longest wait of the row",
      [{ ...retry, afterMs: 9_000 }, sent, { ...retry, afterMs: 5_000 }, retry, retry],
      { cause: "unavailable", afterMs: 5_000, reason: "503" },
    ],
    ["is not for a few users' foreign tokens", Array(49).fill(foreign), undefined],
    ["is for most users'", Array(50).fill(foreign), { cause: "foreign", afterMs: 0, reason: "403" }],
  ])("%s", (_, outcomes, verdict) => {
    const breaker = new Breaker(rules);
    expect(reported(breaker, outcomes)).toEqual(verdict);
    expect(breaker.state(0)).toBe(verdict ? "paused" : "open");
    expect(breaker.admits(0)).toBe(verdict === undefined);
  });

  test("is not for messages that were sent before its last answer, or have failed before", () => {
    const breaker = new Breaker(rules);
    reported(breaker, [sent], 10);
    for (const about of [
      { at: 9, isRetry: false },
      { at: 10, isRetry: true },
    ]) {
      const verdicts = Array.from({ length: 5 }, (_, index) => breaker.report(retry, `${index}`, 11, about));
      expect(verdicts).toEqual(Array(5).fill(undefined));
    }
    // They do not hide a row of others, and one that says so itself is believed.
    expect(reported(breaker, [retry, retry, retry], 11)).toMatchObject({ cause: "unavailable" });
    const other = new Breaker(rules);
    expect(other.report(away, "1", 11, { at: 9, isRetry: true })).toMatchObject({ cause: "unavailable" });
  });

  test("a failure is a message's own only while the service shows that it works", () => {
    const breaker = new Breaker(rules);
    expect(breaker.works(0)).toBe(false);
    reported(breaker, [sent]);
    expect([breaker.works(10_000), breaker.works(10_001)]).toEqual([true, false]);
    reported(breaker, [away], 20);
    expect(breaker.works(20)).toBe(false);
  });
});

describe("a service that is paused", () => {
  test("is paused longer by what was in flight, if that wants it, and opened by none of it", () => {
    const breaker = new Breaker(rules);
    expect(reported(breaker, [away])).toMatchObject({ afterMs: 7_000 });
    expect(reported(breaker, [away], 1_000)).toMatchObject({ afterMs: 7_000 });
    expect(reported(breaker, [{ ...away, afterMs: 100 }], 1_000)).toBe(undefined);
    expect(reported(breaker, [{ ...away, afterMs: 30_000 }], 1_000)).toMatchObject({ afterMs: 30_000 });
    expect(reported(breaker, [sent], 1_000)).toBe(undefined);
    expect(breaker.state(1_000)).toBe("paused");
    expect(breaker.state(31_000)).toBe("probing");
  });
});

describe("a service that is probed", () => {
  test("gets as many messages as a probe has", () => {
    const breaker = probing("unavailable");
    expect([1, 2, 3].map(() => breaker.admits(0))).toEqual([true, true, false]);
  });

  test.each<[string, Cause, Outcome[], Failure["cause"] | "works" | undefined]>([
    ["works if one is accepted", "unavailable", [retry, sent], "works"],
    ["works if one is finally rejected", "refused", [failed], "works"],
    ["works for the users if it answers", "unavailable", [foreign], "works"],
    ["is paused again if all fail", "unavailable", [retry, retry], "unavailable"],
    ["is paused again for its new reason", "unavailable", [refused, refused], "refused"],
    ["still refuses users", "foreign", [foreign, foreign], "foreign"],
    ["takes users again", "foreign", [foreign, sent], "works"],
    ["is not known yet after the first failure", "unavailable", [retry], undefined],
    ["is not known by a device's own failure", "unavailable", [own], undefined],
  ])("%s", (_, cause, outcomes, verdict) => {
    const breaker = probing(cause);
    while (breaker.admits(0));
    const last = reported(breaker, outcomes);
    expect(typeof last === "object" ? last.cause : last).toBe(verdict);
    const states = { works: "open", undefined: "probing" } as const;
    expect(breaker.state(0)).toBe(
      verdict === "works" || verdict === undefined ? states[`${verdict}`] : "paused",
    );
  });

  test("gets another message for one whose failure was its own", () => {
    const breaker = probing("unavailable");
    while (breaker.admits(0));
    reported(breaker, [own]);
    expect(breaker.admits(0)).toBe(true);
  });

  test("is judged by what it answers from then on", () => {
    const breaker = new Breaker(rules);
    reported(breaker, Array(50).fill(foreign));
    breaker.share({ cause: undefined, pausedMs: 0, since: "2" }, 0);
    expect(reported(breaker, Array(49).fill(foreign))).toBe(undefined);
  });
});
