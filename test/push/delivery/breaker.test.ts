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
const silent: Outcome = { kind: "retry", hasNoResponse: true, reason: "response timeout" };
const own: Outcome = { kind: "retry", isOwn: true, reason: "429" };
const throttled: Outcome = { kind: "retry", isThrottled: true, afterMs: 9_000, reason: "429" };
const away: Outcome = { kind: "unavailable", afterMs: 7_000, reason: "ECONNREFUSED" };
const refused: Outcome = { kind: "refused", reason: "401" };
const foreign: Outcome = { kind: "foreign", reason: "403" };
const failed = { kind: "failed", reason: "400" } as const;

/** Reports outcomes at one moment, each of another user. @returns the last verdict */
function reported(
  breaker: Breaker,
  outcomes: readonly Outcome[],
  now = 0,
): Failure | "recovered" | undefined {
  const first = { at: now, hasFailedBefore: false };
  return outcomes.map((outcome, index) => breaker.report(outcome, `user-${index}`, now, first)).at(-1);
}

/** The same numbers from 0 to 1 each time, without a pattern (mulberry32). */
function seeded(): () => number {
  let state = 1;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function failureOf(verdict: Failure | "recovered" | undefined): Failure {
  if (typeof verdict !== "object") throw new Error(`no failure, but ${verdict}`);
  return verdict;
}

function probing(cause: Cause): Breaker {
  const breaker = new Breaker(rules);
  breaker.adopt({ cause, pausedMs: 0, since: "1" }, 0);
  return breaker;
}

describe("a service that is open", () => {
  test.each<[string, Outcome[], Failure | undefined]>([
    ["is not paused for two failures", [retry, retry], undefined],
    ["is for three in a row", [retry, retry, retry], { cause: "unavailable", afterMs: 0, reason: "503" }],
    [
      "is, whatever was not even sent to it in between",
      [retry, retry, { ...failed, isUnasked: true }, retry],
      { cause: "unavailable", afterMs: 0, reason: "503" },
    ],
    ["is not where it responds in between", [retry, retry, failed, retry, retry], undefined],
    ["is not for what is a device's own", [own, own, own, own], undefined],
    [
      "is not where a quota is used up for some",
      [throttled, throttled, sent, throttled, throttled],
      undefined,
    ],
    [
      "is where a quota is used up for several users, and nothing succeeds between",
      [throttled, throttled, throttled],
      { cause: "unavailable", afterMs: 9_000, reason: "429" },
    ],
    [
      "is at once where it cannot be reached",
      [sent, away],
      { cause: "unavailable", afterMs: 7_000, reason: "ECONNREFUSED" },
    ],
    ["is not for two users whom it refuses", [sent, refused, refused], undefined],
    ["is not for others whom it refuses later", [refused, refused, sent, refused], undefined],
    [
      "is for several users whom it refuses, and nobody whom it does not between",
      [sent, refused, refused, refused],
      { cause: "refused", afterMs: 0, reason: "401", fault: "credentials" },
    ],
    [
      "is at once where it was asked once more, and refuses us again",
      [sent, { ...refused, isConfirmed: true }],
      { cause: "refused", afterMs: 0, reason: "401", fault: "credentials" },
    ],
    [
      "is paused for the longest wait of the row",
      [{ ...retry, afterMs: 9_000 }, sent, { ...retry, afterMs: 5_000 }, retry, retry],
      { cause: "unavailable", afterMs: 5_000, reason: "503" },
    ],
    [
      "is paused for no longer than a minute for what one device's quota wants, among the failures of others",
      [retry, { ...throttled, afterMs: 86_400_000 }, retry],
      { cause: "unavailable", afterMs: 60_000, reason: "503" },
    ],
    [
      "is paused for no longer than an hour for what a response wants",
      [retry, { ...retry, afterMs: 86_400_000 }, retry],
      { cause: "unavailable", afterMs: 3_600_000, reason: "503" },
    ],
    ["is not for a few users' foreign tokens", Array(49).fill(foreign), undefined],
    [
      "is for most users'",
      Array(50).fill(foreign),
      { cause: "foreign", afterMs: 0, reason: "403", fault: "credentials" },
    ],
  ])("%s", (_, outcomes, verdict) => {
    const breaker = new Breaker(rules);
    expect(reported(breaker, outcomes)).toEqual(verdict);
    expect(breaker.state(0)).toBe(verdict ? "paused" : "working");
    expect(breaker.admits(0)).toBe(verdict === undefined);
  });

  test("is not for messages without a response that others overtook, or that have failed before", () => {
    const breaker = new Breaker(rules);
    reported(breaker, [sent], 10);
    const quiet = [
      { at: 9, hasFailedBefore: false },
      { at: 10, hasFailedBefore: true },
    ];
    for (const about of quiet) {
      const verdicts = Array.from({ length: 5 }, (_, index) => breaker.report(silent, `${index}`, 11, about));
      expect(verdicts).toEqual(Array(5).fill(undefined));
    }
    // They do not hide a row of others.
    expect(reported(breaker, [silent, silent, silent], 11)).toMatchObject({ cause: "unavailable" });
    // What has a response is counted, whenever it was sent and however often.
    for (const about of quiet) {
      const other = new Breaker(rules);
      reported(other, [sent], 10);
      const verdicts = [1, 2, 3].map((user) => other.report(retry, `${user}`, 11, about));
      expect(verdicts).toMatchObject([undefined, undefined, { cause: "unavailable" }]);
      expect(new Breaker(rules).report(away, "1", 11, about)).toMatchObject({ cause: "unavailable" });
    }
  });

  test.each([
    ["whose messages get no response, and each further one counts once", silent, ["bob", "bob", "cid"]],
    ["whose messages fail", retry, ["bob"]],
  ])("is not for one user alone %s", (_, outcome, others) => {
    const breaker = new Breaker(rules);
    const report = (user: string) => breaker.report(outcome, user, 0, { at: 0, hasFailedBefore: false });
    expect(new Set(Array.from({ length: 50 }, () => report("ann")))).toEqual(new Set([undefined]));
    const verdicts = others.map(report);
    expect(verdicts.pop()).toMatchObject({ cause: "unavailable" });
    expect(verdicts.every((verdict) => verdict === undefined)).toBe(true);
  });

  test("is not for devices whose own quotas are used up, however often each is tried again", () => {
    const breaker = new Breaker(rules);
    const again = { at: 0, hasFailedBefore: true };
    const verdicts = Array.from({ length: 50 }, (_, n) => breaker.report(throttled, `user-${n}`, 0, again));
    expect(new Set(verdicts)).toEqual(new Set([undefined]));
  });

  test.each([0.8, 0.95, 0.998])("is where it fails %d of its messages, with many in flight", (failing) => {
    const breaker = new Breaker({ ...rules, retriesInARow: 20 });
    // 16 messages a millisecond; each is responded to after 50 ms. One in so many succeeds, at no regular distance.
    const random = seeded();
    let verdict: ReturnType<Breaker["report"]>;
    for (let index = 0; index < 20_000 && verdict === undefined; index += 1) {
      const at = index / 16;
      const outcome = random() < failing ? retry : sent;
      verdict = breaker.report(outcome, `user-${index}`, at + 50, { at, hasFailedBefore: false });
    }
    expect(verdict).toMatchObject({ cause: "unavailable" });
  });

  test("is not at the end of a send, by the few messages that never get a response", () => {
    const breaker = new Breaker({ ...rules, retriesInARow: 20 });
    const ends = Array.from({ length: 100_000 }, (_, index) => {
      const isSilent = index % 1_000 === 999;
      return {
        at: index / 10,
        now: index / 10 + (isSilent ? 10_000 : 50),
        outcome: isSilent ? silent : sent,
      };
    }).toSorted((a, b) => a.now - b.now);
    const verdicts = ends.map(({ at, now, outcome }, index) =>
      breaker.report(outcome, `user-${index}`, now, { at, hasFailedBefore: false }),
    );
    expect(verdicts.every((verdict) => verdict === undefined)).toBe(true);
  });

  test("is when the messages time out that were in flight as it fell silent", () => {
    const breaker = new Breaker({ ...rules, retriesInARow: 20 });
    // 800 are in flight at a time. It falls silent at 1,000 ms.
    for (let at = 0; at <= 950; at += 1 / 16)
      breaker.report(sent, `${at}`, at + 50, { at, hasFailedBefore: false });
    const verdicts = Array.from({ length: 799 }, (_, index) => {
      const at = 950 + (index + 1) / 16;
      return breaker.report(silent, `${index}`, at + 10_000, { at, hasFailedBefore: false });
    });
    expect(verdicts.findIndex((verdict) => verdict !== undefined)).toBe(19);
  });

  test("a failure is a message's own only while the service shows that it works", () => {
    const breaker = new Breaker(rules);
    expect(breaker.isHealthy(0)).toBe(false);
    reported(breaker, [sent]);
    expect([breaker.isHealthy(10_000), breaker.isHealthy(10_001)]).toEqual([true, false]);
    reported(breaker, [away], 20);
    expect(breaker.isHealthy(20)).toBe(false);
  });
});

describe("a service that is paused", () => {
  test("is paused longer by what was in flight, if that wants it, and opened by none of it", () => {
    const breaker = new Breaker(rules);
    expect(reported(breaker, [away])).toMatchObject({ afterMs: 7_000 });
    expect(reported(breaker, [away], 1_000)).toMatchObject({ afterMs: 7_100 });
    expect(reported(breaker, [{ ...away, afterMs: 100 }], 1_000)).toBe(undefined);
    expect(reported(breaker, [{ ...away, afterMs: 30_000 }], 1_000)).toMatchObject({ afterMs: 30_100 });
    expect(reported(breaker, [sent], 1_000)).toBe(undefined);
    expect(breaker.state(1_000)).toBe("paused");
    expect(breaker.state(31_100)).toBe("probing");
  });

  test("is not paused longer for a message in flight that meets a quota", () => {
    const breaker = new Breaker(rules);
    reported(breaker, [retry, retry, retry]);
    expect(reported(breaker, [{ ...throttled, afterMs: 86_400_000 }], 1)).toBe(undefined);
    expect(breaker.state(1_000)).toBe("probing");
  });

  test("is not paused longer by each message that was in flight", () => {
    const breaker = new Breaker(rules);
    const verdicts = Array.from({ length: 800 }, (_, index) =>
      breaker.report({ ...retry, afterMs: 10_000 }, `${index}`, 50 + index / 16, {
        at: 0,
        hasFailedBefore: false,
      }),
    );
    expect(verdicts.filter((verdict) => verdict !== undefined)).toHaveLength(2);
    expect(breaker.state(10_099)).toBe("paused");
  });
});

describe("a service that is probed", () => {
  test("loses no probe to a pause that turns out longer", () => {
    const breaker = probing("unavailable");
    while (breaker.admits(0));
    breaker.adopt({ cause: "unavailable", pausedMs: 100, since: "1" }, 0);
    expect([100, 100, 100].map((now) => breaker.admits(now))).toEqual([true, true, false]);
  });

  test("gets as many messages as a probe has", () => {
    const breaker = probing("unavailable");
    expect([1, 2, 3].map(() => breaker.admits(0))).toEqual([true, true, false]);
  });

  test.each<[string, Cause, Outcome[], Failure["cause"] | "recovered" | undefined]>([
    ["works if one is accepted", "unavailable", [retry, sent], "recovered"],
    ["works if one is finally rejected", "refused", [failed], "recovered"],
    ["works for the users if it responds", "unavailable", [foreign], "recovered"],
    ["is paused again if all fail", "unavailable", [retry, retry], "unavailable"],
    ["is paused again for its new reason", "unavailable", [refused, refused, refused], "refused"],
    ["is not known by the refusals of two users", "unavailable", [refused, refused], undefined],
    ["still refuses us", "refused", [refused, refused], "refused"],
    [
      "is paused again where several users meet a quota",
      "unavailable",
      [throttled, throttled],
      "unavailable",
    ],
    ["still refuses users", "foreign", [foreign, foreign], "foreign"],
    ["takes users again", "foreign", [foreign, sent], "recovered"],
    ["is not known yet after the first failure", "unavailable", [retry], undefined],
    ["is not known by a device's own failure", "unavailable", [own], undefined],
  ])("%s", (_, cause, outcomes, verdict) => {
    const breaker = probing(cause);
    while (breaker.admits(0));
    const last = reported(breaker, outcomes);
    expect(typeof last === "object" ? last.cause : last).toBe(verdict);
    const states = { recovered: "working", undefined: "probing" } as const;
    expect(breaker.state(0)).toBe(
      verdict === "recovered" || verdict === undefined ? states[`${verdict}`] : "paused",
    );
  });

  test.each<[string, Outcome, boolean]>([
    ["whose failure was its own", own, false],
    ["that meets a quota, as only its user's have", throttled, false],
    ["that is refused, as only its user's were", refused, false],
    ["that has failed before, and gets no response", silent, true],
  ])("gets another message for one %s", (_, outcome, hasFailedBefore) => {
    const breaker = probing("unavailable");
    while (breaker.admits(0));
    for (let time = 0; time < 2; time += 1) {
      expect(breaker.report(outcome, "1", 0, { at: 0, hasFailedBefore })).toBe(undefined);
    }
    expect([1, 2, 3].map(() => breaker.admits(0))).toEqual([true, true, false]);
    expect(reported(breaker, [retry, retry])).toMatchObject({ cause: "unavailable" });
  });

  test.each([
    ["one user's messages, which is doubtful", silent, ["ann"], true],
    ["one user's messages with a response, which is as doubtful", retry, ["ann"], true],
    ["a few users' messages", silent, ["ann", "bob", "cid"], undefined],
  ])("is paused again each time that it fails %s, until it responds", (_, outcome, users, doubtful) => {
    const breaker = probing("unavailable");
    let now = 0;
    const probe = (user: string, what: Outcome) => {
      expect(breaker.admits(now)).toBe(true);
      const verdict = breaker.report(what, user, now, { at: now, hasFailedBefore: false });
      if (typeof verdict !== "object") return verdict;
      breaker.adopt({ cause: "unavailable", pausedMs: 1_000, since: `${now}` }, now);
      now += 1_000;
      return verdict;
    };
    for (const user of users) probe(user, outcome);
    for (const user of [...users, ...users]) {
      const { cause, isDoubtful } = failureOf(probe(user, outcome));
      expect({ cause, isDoubtful }).toEqual({ cause: "unavailable", isDoubtful: doubtful });
    }
    expect(probe("ann", sent)).toBe("recovered");
    expect(breaker.state(now)).toBe("working");
  });

  test("is not judged by messages that were sent before its pause was over", () => {
    const breaker = new Breaker(rules);
    reported(breaker, [away]);
    breaker.adopt({ cause: "unavailable", pausedMs: 7_000, since: "1" }, 0);
    while (breaker.admits(7_500));
    // Another chunk learns meanwhile that the pause is over; the probes in flight are still its probes.
    breaker.adopt({ cause: "unavailable", pausedMs: 0, since: "1" }, 8_000);
    const late = { at: 6_999, hasFailedBefore: false };
    for (const outcome of [sent, failed, silent, retry, own, away]) {
      expect(breaker.report(outcome, "1", 8_000, late)).toBe(undefined);
    }
    expect([breaker.state(8_000), breaker.admits(8_000)]).toEqual(["probing", false]);
    const probe = { at: 7_500, hasFailedBefore: false };
    expect(breaker.report(silent, "1", 8_000, probe)).toBe(undefined);
    expect(breaker.report(sent, "2", 8_000, probe)).toBe("recovered");
  });

  test("is judged by what it responds from then on", () => {
    const breaker = new Breaker(rules);
    reported(breaker, Array(50).fill(foreign));
    breaker.adopt({ cause: undefined, pausedMs: 0, since: "2" }, 0);
    expect(reported(breaker, Array(49).fill(foreign))).toBe(undefined);
  });
});
