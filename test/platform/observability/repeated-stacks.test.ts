/** One stack a minute for each cause. */
import { expect, it } from "vitest";
import { loggable } from "../../../src/platform/observability/redaction.ts";
import { limitStacks } from "../../../src/platform/observability/repeated-stacks.ts";
import { captureLog } from "../../support/captured-log.ts";

const late = (ms: number) => Object.assign(new Error(`canceled after ${ms} ms`), { code: "57014" });
/** What has thrown it stands at another place each time. */
const failures = [
  (ms: number) => new Error("The query failed", { cause: late(ms) }),
  (ms: number) => new Error("A step failed", { cause: late(ms) }),
];

it("writes it at once and after a minute, and counts the lines between", () => {
  let now = 0;
  const withoutRepeatedStacks = limitStacks(() => now);
  const stackOf = (failure: unknown) => {
    const fields = Object(withoutRepeatedStacks({ requestId: "r", err: loggable(failure) }));
    expect(fields).toMatchObject({ requestId: "r" });
    return JSON.stringify(fields).includes("stack") ? "stack" : Reflect.get(fields, "repeats");
  };
  const seen: unknown[] = [];
  for (; now <= 120_000; now += 15_000) for (const failure of failures) seen.push(stackOf(failure(now)));
  expect(seen).toEqual([
    ...["stack", 1, 2, 3, 4, 5, 6, 7],
    ...["stack", 1, 2, 3, 4, 5, 6, 7],
    ...["stack", 1],
  ]);
  expect(stackOf(new Error("another")), "another error").toBe("stack");
  expect(stackOf(new Error("another")), "the same words at another place").toBe("stack");
});

it("leaves the cause in each line, with its code", () => {
  const { logger, lines } = captureLog();
  for (const [place, failure] of failures.entries()) logger.warn({ place, err: failure(place) }, "It failed");
  expect(lines()[0]).toMatchObject({
    err: { stack: expect.stringContaining("at "), cause: { code: "57014" } },
  });
  expect(lines()[1]?.["err"]).toEqual({
    type: "Error",
    message: "A step failed",
    cause: { type: "Error", message: "canceled after 1 ms", code: "57014" },
  });
  expect(lines()[1]).toMatchObject({ repeats: 1, msg: "It failed" });
});
