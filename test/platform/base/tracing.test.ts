import { describe, expect, test } from "vitest";
import {
  currentSpan,
  inSpan,
  isSampled,
  readTraceparent,
  startSpan,
  untraced,
  within,
} from "../../../src/platform/base/tracing.ts";
import { recordSpans } from "../../support/recorded-spans.ts";

const trace = "4bf92f3577b34da6a3ce929d0e0e4736";
const parent = { traceparent: `00-${trace}-00f067aa0ba902b7-01` };
const internal = { name: "work", kind: "internal" } as const;

describe("a traceparent", () => {
  test.each([
    [`00-${trace}-00f067aa0ba902b7-01`, true],
    [`00-${trace}-00f067aa0ba902b7-00`, false],
    [`cc-${trace}-00f067aa0ba902b7-03`, true],
  ])("%s is read, and says whether it is recorded", (traceparent, sampled) => {
    expect(readTraceparent(traceparent)).toMatchObject({ traceId: trace, spanId: "00f067aa0ba902b7" });
    expect(isSampled({ traceparent })).toBe(sampled);
  });

  test.each([
    `ff-${trace}-00f067aa0ba902b7-01`,
    `00-${"0".repeat(32)}-00f067aa0ba902b7-01`,
    `00-${trace}-${"0".repeat(16)}-01`,
    `00-${trace.toUpperCase()}-00f067aa0ba902b7-01`,
    `00-${trace}-00f067aa0ba902b7`,
    "",
  ])("%s is none", (text) => {
    expect(readTraceparent(text)).toBeUndefined();
    expect(isSampled({ traceparent: text })).toBe(false);
  });
});

describe("without a tracer", () => {
  test("there is no span, and work is done as ever", async () => {
    expect(startSpan(internal)).toBeUndefined();
    expect(await inSpan(internal, async (span) => [span, currentSpan()])).toEqual([undefined, undefined]);
    expect(within(undefined, () => "done")).toBe("done");
    expect(untraced(() => "done")).toBe("done");
  });
});

describe("with a tracer", () => {
  test("a span is a part of the one around it, also after a wait; a server's and a consumer's are not", async () => {
    const spans = recordSpans();
    await inSpan({ name: "request", kind: "server", parent }, async (request) => {
      await Promise.resolve();
      for (const kind of ["internal", "client", "producer", "server", "consumer"] as const)
        startSpan({ name: kind, kind })?.end();
      untraced(() => startSpan({ name: "apart", kind: "client" }));
      expect(currentSpan()).toBe(request);
    });
    const [request, ...others] = spans;
    expect(request).toMatchObject({ parent, error: null });
    const own = { traceparent: request?.traceparent };
    expect(others.map(({ parent }) => parent)).toEqual([own, own, own, undefined, undefined, undefined]);
    expect(currentSpan()).toBeUndefined();
  });

  test("a span whose work rejects has failed, and has the error's name, but not its message", async () => {
    const spans = recordSpans();
    const work = inSpan(internal, () => Promise.reject(new TypeError("+15550001111 is no number")));
    await expect(work).rejects.toThrow("+15550001111");
    await inSpan(
      internal,
      () => Promise.reject(new Error("secret")),
      () => "23505",
    ).catch(() => undefined);
    expect(spans.map(({ error }) => error)).toEqual(["TypeError", "23505"]);
    expect(JSON.stringify(spans)).not.toMatch(/\+1555|secret/);
  });
});
