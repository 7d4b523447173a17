import { expect, test } from "vitest";
import { RequestContext } from "../../../src/platform/base/request-context.ts";
import { createLogger } from "../../../src/platform/observability/logger.ts";

const logger = createLogger({ level: "fatal", environment: "production" });
const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
const spanId = "00f067aa0ba902b7";

test("a valid traceparent of the caller is passed on", () => {
  const traceparent = `00-${traceId}-${spanId}-01`;
  expect(new RequestContext(logger, undefined, traceparent).traceparent).toBe(traceparent);
});

// W3C Trace Context, sections 3.2.2.1 to 3.2.2.4.
test.for([
  ["of version ff", `ff-${traceId}-${spanId}-01`],
  ["with a trace id of zeros", `00-${"0".repeat(32)}-${spanId}-01`],
  ["with a span id of zeros", `00-${traceId}-${"0".repeat(16)}-01`],
  ["in upper case", `00-${traceId.toUpperCase()}-${spanId}-01`],
])("a traceparent %s is dropped", ([, traceparent]) => {
  expect(new RequestContext(logger, undefined, traceparent).traceparent).toBeUndefined();
});
