/** Spans of events and queued work, which continue the trace in which these were written; without one, no span. */
import {
  inSpan,
  isTracing,
  type SpanAttributes,
  type SpanStart,
  type TraceContext,
} from "../base/tracing.ts";
import type { CloudEvent } from "./cloud-event.ts";

export function published(event: CloudEvent, publish: () => Promise<void>): Promise<void> {
  return eventSpan("producer", "publish", "send", "nats", event, publish);
}

/** Handles an event. @param system the messaging system through which the event came */
export function processed(system: string, event: CloudEvent, handle: () => Promise<void>): Promise<void> {
  return eventSpan("consumer", "process", "process", system, event, handle);
}

function eventSpan(
  kind: SpanStart["kind"],
  operation: string,
  operationType: string,
  system: string,
  { id, type, traceparent, tracestate }: CloudEvent,
  work: () => Promise<void>,
): Promise<void> {
  if (!isTracing() || traceparent === undefined) return work();
  const attributes = messagingAttributes(system, operation, operationType, type, id);
  return inSpan(
    { name: `${operation} ${type}`, kind, attributes, parent: { traceparent, tracestate } },
    work,
  );
}

/** Does work that a row of a table holds. @param parent the span in which it was written, if there was one */
export function inQueueSpan(
  queue: string,
  id: string,
  parent: TraceContext | undefined,
  work: () => Promise<void>,
): Promise<void> {
  if (!isTracing() || parent === undefined) return work();
  const attributes = messagingAttributes("postgresql", "process", "process", queue, id);
  return inSpan({ name: `process ${queue}`, kind: "consumer", attributes, parent }, work);
}

function messagingAttributes(
  system: string,
  operation: string,
  operationType: string,
  destination: string,
  id: string,
): SpanAttributes {
  return {
    "messaging.system": system,
    "messaging.operation.name": operation,
    "messaging.operation.type": operationType,
    "messaging.destination.name": destination,
    "messaging.message.id": id,
  };
}
