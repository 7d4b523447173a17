/** What spends a try, what waits without one, and what is given up. */
import { describe, expect, test } from "vitest";
import { deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { type NextTry, nextTries } from "../../../src/push/delivery/next-try.ts";
import type { Left, LeftDevice } from "../../../src/push/delivery/tally.ts";

const rules = { ...deliveryRules, firstRetryMs: 10, longestRetryMs: 40, maxRetries: 3, giveUpMs: 1_000 };
const chunk = { retries: 0, reason: null, ageMs: 0 };

interface Case {
  readonly chunk?: Partial<{ retries: number; reason: string; ageMs: number }>;
  /** Ids of devices of the service "", or with the wait that the provider wants and their service. */
  readonly left: { readonly [Group in Exclude<keyof Left, "untried" | "blocked">]?: readonly Device[] } & {
    readonly untried?: number;
    readonly blocked?: Left["blocked"];
  };
  /** Services that are paused, and those that are probed. The others are open. */
  readonly closed?: readonly string[];
  readonly probed?: readonly string[];
}

type Device = number | readonly [id: number, afterMs: number, service?: string];

function devices(given: readonly Device[] = []): LeftDevice[] {
  return given.map((device) => {
    const [id, afterMs, service = ""] = typeof device === "number" ? [device, 0] : device;
    return { id, afterMs, service };
  });
}

function tries({ left, closed = [], probed = [], ...given }: Case): NextTry[] {
  const { untried = 0, blocked = new Map(), waiting, unclear, failing } = left;
  return nextTries(
    { ...chunk, ...given.chunk },
    { untried, blocked, waiting: devices(waiting), unclear: devices(unclear), failing: devices(failing) },
    {
      state: (service) =>
        closed.includes(service) ? "paused" : probed.includes(service) ? "probing" : "working",
    },
    "500",
    rules,
    () => 0,
  );
}

describe("the next try", () => {
  test.each<[string, Case, Partial<NextTry>[]]>([
    ["none where nothing is left", { left: {} }, []],
    [
      "at once, in its turn, of what was not tried",
      { left: { waiting: [1, 2], untried: 2 } },
      [{ devices: [1, 2], afterMs: 0, isRetry: false, retries: 0, reason: null }],
    ],
    [
      "of what was refused after all others, when the pause is over, without a try",
      { left: { waiting: [1] }, closed: [""] },
      [{ devices: [1], services: [""], isRetry: true, retries: 0, reason: "500", giveUp: false }],
    ],
    [
      "of what an outage hit when it is over: no try, however many there were, and however long it took",
      { chunk: { retries: 3, reason: "500", ageMs: 9_999 }, left: { unclear: [1] }, closed: [""] },
      [{ services: [""], retries: 3, giveUp: false }],
    ],
    [
      "of what an outage hit together with what it kept from being sent",
      { left: { waiting: [1], untried: 1, unclear: [2] }, closed: [""] },
      [{ devices: [1, 2], services: [""], isRetry: false, retries: 0 }],
    ],
    [
      "later with each failure",
      { chunk: { retries: 1 }, left: { failing: [1] } },
      [{ afterMs: 20, retries: 2 }],
    ],
    ["not before the provider wants it", { left: { failing: [[1, 99]] } }, [{ afterMs: 99, retries: 1 }]],
    [
      "of those for which the provider wants a wait apart from the others, and of about the same waits together",
      { left: { failing: [1, [2, 3_600_000], [3, 20], [4, 15], [5, 8]], unclear: [[6, 70], 7] } },
      [
        { devices: [6], afterMs: 70, retries: 0 },
        { devices: [7], afterMs: 10, retries: 0 },
        { devices: [1, 5], afterMs: 10, retries: 1 },
        { devices: [2], afterMs: 3_600_000, retries: 1 },
        { devices: [3, 4], afterMs: 20, retries: 1 },
      ],
    ],
    [
      "of one's own failure when its own wait is over, and counted, while the service is paused or probed",
      { left: { waiting: [1], untried: 1, failing: [[2, 30]] }, closed: [""] },
      [
        { devices: [1], services: [""], retries: 0 },
        { devices: [2], services: [], afterMs: 30, retries: 1 },
      ],
    ],
    [
      "none of what is blocked, though it is the first, and as ever of what failed by itself",
      { left: { failing: [1], blocked: new Map([["401 THIRD_PARTY_AUTH_ERROR", [2, 3]]]) } },
      [
        { devices: [1], retries: 1, giveUp: false },
        { devices: [2, 3], retries: 0, reason: "401 THIRD_PARTY_AUTH_ERROR", giveUp: true },
      ],
    ],
    [
      "of what one service's outage hit, apart from another that works",
      {
        left: {
          unclear: [
            [1, 0, "down"],
            [2, 0, "up"],
          ],
        },
        closed: ["down"],
      },
      [
        { devices: [1], services: ["down"] },
        { devices: [2], services: [], afterMs: 10 },
      ],
    ],
    [
      "none after the last, whatever the provider wants",
      { chunk: { retries: 3 }, left: { failing: [1, [2, 99]] } },
      [{ devices: [1, 2], retries: 4, giveUp: true }],
    ],
    [
      "none after an hour of failures",
      { chunk: { retries: 1, reason: "500", ageMs: 1_001 }, left: { failing: [1] } },
      [{ retries: 2, giveUp: true }],
    ],
    [
      "after the first failure of its own, however long nothing has shown whose failures they were",
      { chunk: { retries: 0, reason: "500", ageMs: 1_001 }, left: { failing: [1] } },
      [{ afterMs: 10, retries: 1, giveUp: false }],
    ],
    [
      "not before the provider wants it, whoever is answered meanwhile",
      { chunk: { retries: 0, reason: "503", ageMs: 30 }, left: { unclear: [[1, 25], 2] } },
      [
        { devices: [1], afterMs: 30, endsWithResponse: false },
        { devices: [2], afterMs: 30, endsWithResponse: true },
      ],
    ],
    [
      "none after an hour in which nothing shows whose failure it is, of what has failed by itself before",
      { chunk: { retries: 1, reason: "500", ageMs: 1_001 }, left: { unclear: [1] } },
      [{ devices: [1], retries: 1, giveUp: true }],
    ],
    [
      "of what nothing shows whose failure it is, with the next answer or later each time, and never given up",
      { chunk: { retries: 0, reason: "500", ageMs: 30 }, left: { unclear: [1] } },
      [{ devices: [1], afterMs: 30, endsWithResponse: true, retries: 0, giveUp: false }],
    ],
    [
      "of such a failure within bounds, however long it has been so",
      { chunk: { retries: 0, reason: "500", ageMs: 1_001 }, left: { unclear: [1] } },
      [{ devices: [1], afterMs: 40, retries: 0, giveUp: false }],
    ],
    [
      "of such a failure of one of many services when its own wait is over",
      { chunk: { retries: 0, reason: "500", ageMs: 30 }, left: { unclear: [[1, 0, "quiet"]] } },
      [{ devices: [1], afterMs: 30, endsWithResponse: false }],
    ],
    [
      "of a probe that has failed by itself before when its own wait is over",
      {
        chunk: { retries: 2, reason: "500" },
        left: { waiting: [1], untried: 1, unclear: [2] },
        probed: [""],
      },
      [
        { devices: [1], services: [""], retries: 2 },
        { devices: [2], services: [], afterMs: 20, retries: 2, giveUp: false },
      ],
    ],
    [
      "none of such a probe after an hour",
      { chunk: { retries: 2, reason: "500", ageMs: 1_001 }, left: { unclear: [1] }, probed: [""] },
      [{ devices: [1], giveUp: true }],
    ],
    [
      "of a probe that has not failed before with what waits for its service",
      { left: { waiting: [1], untried: 1, unclear: [2] }, probed: [""] },
      [{ devices: [1, 2], services: [""], retries: 0, giveUp: false }],
    ],
    [
      "of each part by itself",
      { chunk: { retries: 3 }, left: { waiting: [1, 2], untried: 1, unclear: [3], failing: [4] } },
      [
        { devices: [1, 2], afterMs: 0, isRetry: false, giveUp: false },
        { devices: [3], afterMs: 40, isRetry: true, retries: 3, giveUp: false },
        { devices: [4], isRetry: true, retries: 4, giveUp: true },
      ],
    ],
  ])("%s", (_, given, expected) => {
    const found = tries(given);
    expect(found).toMatchObject(expected);
    expect(found).toHaveLength(expected.length);
  });
});
