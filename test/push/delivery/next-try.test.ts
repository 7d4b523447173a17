/** What spends a try, what waits without one, and what is given up. */
import { describe, expect, test } from "vitest";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { type NextTry, nextTries } from "../../../src/push/delivery/next-try.ts";
import type { Left } from "../../../src/push/delivery/tally.ts";

const rules = { ...deliveryRules, firstRetryMs: 10, longestRetryMs: 40, maxRetries: 3, giveUpMs: 1_000 };
const nobody: Left = { waiting: [], untried: 0, unclear: [], failing: [] };
const chunk = { retries: 0, reason: null, ageMs: 0 };

interface Case {
  readonly chunk?: Partial<{ retries: number; reason: string; ageMs: number }>;
  readonly left: Partial<Left>;
  readonly closed?: readonly string[];
  readonly afterMs?: number;
  readonly isComplete?: boolean;
}

function tries(given: Case): NextTry[] {
  const { closed = [], afterMs = 0, isComplete = true } = given;
  const circumstances = { closed: () => closed, afterMs, reason: "500", isComplete };
  return nextTries({ ...chunk, ...given.chunk }, { ...nobody, ...given.left }, circumstances, rules, () => 0);
}

describe("the next try", () => {
  test.each<[string, Case, Partial<NextTry>[]]>([
    ["none where nothing is left", { left: {} }, []],
    [
      "at once, in its turn, of what was not tried",
      { left: { waiting: [1, 2], untried: 2 }, isComplete: false },
      [{ devices: [1, 2], afterMs: 0, isLast: false, retries: 0, reason: null }],
    ],
    [
      "of what was refused after all others, when the pause is over, without a try",
      { left: { waiting: [1] }, closed: [""] },
      [{ devices: [1], services: [""], isLast: true, retries: 0, reason: "500", giveUp: false }],
    ],
    [
      "of what an outage hit when it is over: no try, however many there were, and however long it took",
      { chunk: { retries: 3, reason: "500", ageMs: 9_999 }, left: { unclear: [1] }, closed: [""] },
      [{ services: [""], retries: 3, giveUp: false }],
    ],
    [
      "of what an outage hit together with what it kept from being sent",
      { left: { waiting: [1], untried: 1, unclear: [2] }, closed: [""] },
      [{ devices: [1, 2], services: [""], isLast: false, retries: 0 }],
    ],
    [
      "later with each failure",
      { chunk: { retries: 1 }, left: { failing: [1] } },
      [{ afterMs: 20, retries: 2 }],
    ],
    [
      "not before the provider wants it",
      { left: { failing: [1] }, afterMs: 99 },
      [{ afterMs: 99, retries: 1 }],
    ],
    [
      "none after the last",
      { chunk: { retries: 3 }, left: { failing: [1] } },
      [{ retries: 4, giveUp: true }],
    ],
    [
      "none after an hour of failures",
      { chunk: { reason: "500", ageMs: 1_001 }, left: { failing: [1] } },
      [{ retries: 1, giveUp: true }],
    ],
    [
      "uncounted where the sending was interrupted",
      { chunk: { retries: 3 }, left: { failing: [1] }, isComplete: false },
      [{ retries: 3, giveUp: false }],
    ],
    [
      "of each part by itself",
      { chunk: { retries: 3 }, left: { waiting: [1, 2], untried: 1, unclear: [3], failing: [4] } },
      [
        { devices: [1, 2], afterMs: 0, isLast: false, giveUp: false },
        { devices: [3], afterMs: 40, isLast: true, retries: 3, giveUp: false },
        { devices: [4], isLast: true, retries: 4, giveUp: true },
      ],
    ],
  ])("%s", (_, given, expected) => {
    expect(tries(given)).toMatchObject(expected);
  });
});
