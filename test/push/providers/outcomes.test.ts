import { expect, test } from "vitest";
import type { NoResponse } from "../../../src/platform/http2/exchange.ts";
import { codeIn, noResponseOutcome, retryAfterMs } from "../../../src/push/providers/outcomes.ts";

const now = Date.UTC(2026, 10, 21, 12);
test.each([
  ["7200", 7_200_000],
  ["Sat, 21 Nov 2026 18:00:00 GMT", 21_600_000],
  ["86401", 86_400_000],
  ["Mon, 23 Nov 2026 12:00:00 GMT", 86_400_000],
  ["Sat, 21 Nov 2026 11:00:00 GMT", 0],
  ["soon", undefined],
])("Retry-After is respected up to a day: %s", (text, ms) => {
  const response = {
    responded: true,
    status: 429,
    isComplete: true,
    header: () => text,
    trailer: () => undefined,
    body: () => Buffer.alloc(0),
    text: () => "",
  } as const;
  expect(retryAfterMs(response, { now: () => now })).toBe(ms);
});

test.each<[NoResponse["cause"], object]>([
  ["unreachable", { kind: "unavailable", hasNoResponse: true, reason: "why" }],
  ["lost", { kind: "retry", hasNoResponse: true, afterMs: 10_000, reason: "why" }],
  ["timeout", { kind: "retry", hasNoResponse: true, afterMs: 10_000, reason: "why" }],
  ["aborted", { kind: "retry", afterMs: 10_000, reason: "why" }],
])("no answer: %s", (cause, outcome) => {
  expect(noResponseOutcome({ responded: false, cause, reason: "why" })).toEqual(outcome);
});

test.each([
  ["UNREGISTERED", "UNREGISTERED"],
  ["BadDeviceToken", "BadDeviceToken"],
  ["The token abc:DEF-123 is not valid", undefined],
  ["eyJhbGciOiJSUzI1NiJ9.e30.c2ln", undefined],
  ["A".repeat(65), undefined],
  ["", undefined],
  [7, undefined],
  [undefined, undefined],
])("a code may stand in a reason only if it is surely one: %j", (value, expected) => {
  expect(codeIn(value)).toBe(expected);
});
