import { describe, expect, test } from "vitest";
import { IdentityDeletedSchema } from "../../../gen/proto/auth/v1/events_pb.ts";
import { type CloudEvent, decodeEvent, encodeEvent } from "../../../src/platform/messaging/cloud-event.ts";
import { inQueueSpan } from "../../../src/platform/messaging/event-spans.ts";
import { subscriberWithTimeout } from "../../../src/platform/messaging/subscribers.ts";
import { recordSpans } from "../../support/recorded-spans.ts";

const traceparent = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
const event: CloudEvent = {
  specversion: "1.0",
  id: "0190163d-8694-739b-aea5-966c26f8ad90",
  source: "https://auth.example.com",
  type: "auth.identity.deleted.v1",
  subject: "user-1",
  time: "2026-01-02T03:04:05.678Z",
  datacontenttype: "application/json",
  data: { identityId: "user-1" },
};

describe("an event over the broker", () => {
  const overBroker = (sent: CloudEvent, headers: Record<string, string> = {}) => {
    const encoded = encodeEvent(sent, IdentityDeletedSchema);
    return decodeEvent(
      (name) => headers[name] ?? encoded.headers.get(name),
      encoded.payload,
      IdentityDeletedSchema,
    );
  };

  test("keeps the span that it came to be in, and has none where there was none", () => {
    const traced = { ...event, traceparent };
    expect(overBroker(traced)).toEqual(traced);
    // A value may contain spaces, quotation marks and percent signs, but no header of NATS does.
    const stateful = { ...traced, tracestate: 'vendor=a "b" 100%,other=1' };
    expect(overBroker(stateful)).toEqual(stateful);
    const longest = { ...traced, tracestate: `vendor=${"v".repeat(505)}` };
    expect(overBroker(longest)).toEqual(longest);
    expect(overBroker(event)).toEqual(event);
  });

  test.each([
    ["no traceparent", { "ce-traceparent": "garbage", "ce-tracestate": "vendor=1" }],
    ["a tracestate alone", { "ce-tracestate": "vendor=1" }],
  ])("is an event without a trace, if somebody else writes %s", (_, headers) => {
    expect(overBroker(event, headers)).toEqual(event);
  });

  test.each([
    ["a broken escape", "vendor=%zz"],
    ["a control character", "vendor=%0a"],
    ["a character beyond ASCII", "vendor=%C3%A9"],
    ["more than 512 characters", `vendor=${"v".repeat(506)}`],
  ])("has no tracestate, if somebody else writes %s there", (_, tracestate) => {
    const traced = { ...event, traceparent };
    expect(overBroker(traced, { "ce-tracestate": tracestate })).toEqual(traced);
  });
});

describe("what is done about an event, and a job", () => {
  const acting = { deliver: async () => undefined };
  const process = (one: CloudEvent) => subscriberWithTimeout(acting.deliver).deliver(one);

  test("is a part of the trace that it came to be in", async () => {
    const spans = recordSpans();
    const parent = { traceparent, tracestate: "vendor=1" };
    await process({ ...event, ...parent });
    await inQueueSpan("plan", "4d6a", parent, acting.deliver);
    expect(spans).toMatchObject([
      { name: "process auth.identity.deleted.v1", kind: "consumer", parent, error: null },
      { name: "process plan", kind: "consumer", parent, error: null },
    ]);
  });

  test("has no span where that was not traced, or nothing is traced here", async () => {
    await process({ ...event, traceparent });
    const spans = recordSpans();
    await process(event);
    await inQueueSpan("plan", "4d6a", undefined, acting.deliver);
    expect(spans).toEqual([]);
  });
});
