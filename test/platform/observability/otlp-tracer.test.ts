/** What the tracer sends, and what becomes of what it cannot send. */
import { expect, onTestFinished, test } from "vitest";
import { inSpan, isSampled, traceWith } from "../../../src/platform/base/tracing.ts";
import { batched } from "../../../src/platform/database/sql/batched-lookup.ts";
import { inStatementSpan } from "../../../src/platform/database/sql/statement-spans.ts";
import { createOtlpTracer } from "../../../src/platform/observability/otlp-tracer.ts";
import { captureLog } from "../../support/captured-log.ts";
import { startOtlpReceiver } from "../../support/otlp-receiver.ts";
import { waitFor } from "../../support/wait-for.ts";

async function tracerTo(status: () => number, ratio = 1) {
  const receiver = await startOtlpReceiver(status);
  onTestFinished(() => receiver.stop());
  const { logger, lines } = captureLog();
  const tracer = createOtlpTracer({
    settings: {
      endpoint: receiver.endpoint,
      headers: { "api-key": "a key" },
      serviceName: undefined,
      sampler: { root: "traceidratio", isParentBased: true, ratio },
    },
    serviceName: "test",
    program: { name: "test", version: "1" },
    logger,
  });
  onTestFinished(() => tracer.close(1_000));
  return { receiver, tracer, lines };
}

const work = { name: "work", kind: "internal" } as const;

test("that the collector takes no spans is said once, until all arrives again", async () => {
  let status = 400;
  const { receiver, tracer, lines } = await tracerTo(() => status);
  const messages = () => lines().map(({ msg }) => msg);
  for (let index = 0; index < 3_000; index += 1) tracer.start(work).end();
  await waitFor(() => expect(messages()).toEqual(["Traces could not be sent and are lost"]));
  // All batches, of which each is refused.
  await waitFor(() => expect(receiver.headers.length).toBeGreaterThan(3));
  expect(messages()).toHaveLength(1);

  status = 200;
  await waitFor(() => {
    tracer.start(work).end();
    expect(messages()).toEqual(["Traces could not be sent and are lost", "Traces are sent again"]);
  });
  expect(receiver.headers.at(-1)).toMatchObject({ "api-key": "a key" });
});

test("a look-up that recorded requests share arrives, whatever share of the traces is recorded", async () => {
  const { receiver, tracer } = await tracerTo(() => 200, 0);
  traceWith(tracer);
  onTestFinished(() => traceWith(undefined));
  const look = batched<string, string>({
    load: (keys) =>
      inStatementSpan("select 1 from auth.a", async () => new Map(keys.map((key) => [key, key]))),
  });
  const caller = (trace: string) => `00-${trace.repeat(32)}-${"b".repeat(16)}-01`;
  await Promise.all([
    ...["1", "2", "3"].map((trace) =>
      inSpan({ name: "request", kind: "server", parent: { traceparent: caller(trace) } }, () => look(trace)),
    ),
    inSpan({ name: "unrecorded", kind: "server" }, async (span) => {
      expect(span && isSampled(span.context)).toBe(false);
      await look("4");
    }),
  ]);
  await waitFor(() => expect(receiver.spans).toHaveLength(7));
  const { spans } = receiver;
  const shared = spans.find(({ links }) => links.length === 2);
  expect(spans.find(({ kind }) => kind === "client")?.parentId).toBe(shared?.spanId);
  for (const request of spans.filter(({ kind }) => kind === "server")) {
    const own = spans.find(({ parentId }) => parentId === request.spanId);
    expect(own).toMatchObject({ name: "batch", isParentRemote: false, isLinkRemote: false });
    if (own !== shared) expect(own?.links).toEqual([shared?.spanId]);
  }
});
