/** Which responses are said to show a fault of the process that got them, by what the providers really send. */
import { describe, expect, test } from "vitest";
import { faultOf } from "../../../src/push/delivery/faults.ts";
import type { Outcome } from "../../../src/push/providers/provider.ts";

const reason = "why";

describe("a failure", () => {
  test.each<[string, Outcome, string | undefined]>([
    ["a refused key, access token, project or topic", { kind: "refused", reason }, "credentials"],
    ["one that is confirmed", { kind: "refused", isConfirmed: true, reason }, "credentials"],
    ["a refusal while the clocks differ", { kind: "refused", isOfTime: true, reason }, "clock"],
    ["tokens of another key or project", { kind: "foreign", reason }, "credentials"],
    ["no connection", { kind: "unavailable", hasNoResponse: true, reason }, "network"],
    ["no response", { kind: "retry", hasNoResponse: true, reason }, "network"],
    ["a response of the token endpoint", { kind: "unavailable", reason }, undefined],
    ["a 5xx", { kind: "retry", afterMs: 10_000, reason }, undefined],
    ["a quota", { kind: "retry", isThrottled: true, reason }, undefined],
    ["a rejected message", { kind: "failed", reason }, undefined],
  ])("%s is of %3$s", (_, outcome, fault) => {
    expect(faultOf(outcome)).toBe(fault);
  });
});
