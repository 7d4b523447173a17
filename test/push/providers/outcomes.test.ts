import { expect, test } from "vitest";
import { codeIn, noResponseOutcome } from "../../../src/push/providers/outcomes.ts";
import type { NoResponse } from "../../../src/push/providers/transport/http2-exchange.ts";

test.each<[NoResponse["cause"], object]>([
  ["unreachable", { kind: "unavailable", reason: "why" }],
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
