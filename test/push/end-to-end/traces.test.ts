/** The trace of a send goes from the request that sent it to each of its messages, through whichever processes. */
import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { type RecordedSpan, recordSpans } from "../../support/recorded-spans.ts";
import { backends } from "../../support/servers.ts";
import { until } from "./operator.ts";
import { createSendingLab, devicesAt } from "./sending-lab.ts";

/** A caller with a trace of its own. */
function newCaller() {
  const [traceId, spanId] = [randomBytes(16).toString("hex"), randomBytes(8).toString("hex")];
  return { traceId, spanId, headers: { traceparent: `00-${traceId}-${spanId}-01` } };
}

const isPaused = 'gatepost_push_provider_paused{provider="fcm",cause="refused"} 1';

const idsOf = (traceparent = "") => traceparent.split("-").slice(1, 3);

const inTrace = (spans: readonly RecordedSpan[], { traceId }: { readonly traceId: string }) =>
  spans.filter(({ traceparent }) => idsOf(traceparent)[0] === traceId);

/** The spans from one up to that of the caller, which is not among them. */
function wayUp(spans: readonly RecordedSpan[], from: RecordedSpan, to: string): RecordedSpan[] {
  const way = [from];
  for (let parent = idsOf(from.parent?.traceparent)[1]; parent !== to; ) {
    const around = spans.find(({ traceparent }) => idsOf(traceparent)[1] === parent);
    if (!around) throw new Error(`nobody has the span above ${way.at(-1)?.name}`);
    way.push(around);
    parent = idsOf(around.parent?.traceparent)[1];
  }
  return way;
}

describe.each(backends)("a send on %s", (backend) => {
  it("is one trace, though one process accepts it, another plans it and a third one sends it", async () => {
    const spans = recordSpans();
    await using lab = await createSendingLab(backend);
    // FCM refuses us, so that what is planned is not sent.
    const refusing = lab.fcm.play({ answer: "PERMISSION_DENIED" });
    const before = await lab.start();
    await lab.addDevices([...devicesAt([0], 3, "before"), ...devicesAt([60], 3, "device")]);
    const earlier = await before.send({ utcOffsets: [0] });
    await until("FCM is paused", async () => (await before.metrics.registry.metrics()).includes(isPaused));
    await before.stop();

    const caller = newCaller();
    const accepting = await lab.start({ isIdle: true });
    const id = await accepting.send({ utcOffsets: [60] }, caller.headers);
    await accepting.stop();
    const accepted = inTrace(spans, caller);
    expect(accepted.map(({ kind }) => kind)).toContain("server");

    const planning = await lab.start();
    await until("it is planned", async () => (await planning.progress(id)).planned === 3);
    await planning.stop();
    const planned = inTrace(spans, caller).slice(accepted.length);
    expect(planned.map(({ kind }) => kind)).toContain("consumer");
    expect(lab.fcm.ledger.summary().messages).toBe(0);

    refusing.stop();
    const sending = await lab.start();
    const resumed = await sending.call("resumeProvider", { as: sending.as, path: { provider: "fcm" } });
    expect(resumed.status).toBe(200);
    for (const one of [id, earlier]) expect(await sending.ended(one)).toMatchObject({ sent: 3 });
    const sent = inTrace(spans, caller).slice(accepted.length + planned.length);
    const messages = sent.filter(({ name }) => name === "send fcm");
    expect(messages.map(({ kind, error }) => [kind, error])).toEqual(Array(3).fill(["client", null]));
    for (const message of messages) {
      const way = wayUp(spans, message, caller.spanId);
      // From the message to the request, of another process.
      expect(way.filter((span) => accepted.includes(span)).at(-1)).toMatchObject({ kind: "server" });
      expect(way.filter((span) => sent.includes(span) && span.kind === "consumer")).not.toEqual([]);
    }
    // The other send is in no trace of this caller's.
    expect(spans.filter(({ name }) => name === "send fcm").length).toBeGreaterThan(messages.length);
  });

  it("is one trace also for what is tried again", async () => {
    const spans = recordSpans();
    await using lab = await createSendingLab(backend);
    const push = await lab.start();
    await lab.addDevices(devicesAt([0], 1, "device"));
    lab.fcm.play({ tokenPrefix: "device", answer: "INTERNAL", retryAfter: 1, times: 2 });
    const caller = newCaller();
    const id = await push.send({ utcOffsets: [0] }, caller.headers);
    expect(await push.ended(id)).toMatchObject({ sent: 1 });
    const tries = inTrace(spans, caller).filter(({ name }) => name === "send fcm");
    expect(tries).toHaveLength(3);
    for (const message of tries) expect(wayUp(spans, message, caller.spanId)).not.toEqual([]);
  });
});
