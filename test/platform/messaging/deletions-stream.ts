/** What the tests of the broker publish and read: one stream, one consumer of it, and deletions of identities. */
import { randomUUID } from "node:crypto";
import { AuthEvents } from "../../../src/auth/events.ts";
import type { Broker, DurableConsumer } from "../../../src/platform/messaging/broker.ts";
import type { CloudEvent } from "../../../src/platform/messaging/cloud-event.ts";
import { startConsuming } from "../../../src/platform/messaging/consume-events.ts";
import type { captureLog } from "../../support/captured-log.ts";

export const stream = { name: "gatepost-auth", subjects: "auth.>" };
export const { type, message: schema } = AuthEvents.identityDeleted;
export const consumer: DurableConsumer = { stream, name: "reader", subject: type };

/** How a server without sign-in is reached, where nothing else is set. */
export const commonSettings = {
  credentials: undefined,
  ca: undefined,
  replicas: 1,
  retentionDays: 7,
};

export function deletionOf(subject: string, id: string = randomUUID()): CloudEvent {
  return {
    specversion: "1.0",
    id,
    source: "https://id.example.com/api/auth",
    type,
    subject,
    time: "2026-11-21T09:30:15.123Z",
    datacontenttype: "application/json",
    data: { identityId: subject },
  };
}

/** Collects what is consumed. @param refuse decides whether an event fails this time, or with which error */
export function consumeFrom(
  broker: Broker,
  { logger }: ReturnType<typeof captureLog>,
  refuse: (event: CloudEvent) => boolean | Error = () => false,
) {
  const taken: CloudEvent[] = [];
  const handle = async (event: CloudEvent) => {
    const refused = refuse(event);
    if (refused) throw refused === true ? new Error("this event is refused") : refused;
    taken.push(event);
  };
  const loop = startConsuming({ broker, consumer, schema, handle, logger });
  return { taken, subjects: () => taken.map(({ subject }) => subject), stop: () => loop.stop() };
}
