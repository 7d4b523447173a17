import type { DescMessage } from "@bufbuild/protobuf";
import type { Broker, EventStream } from "./broker.ts";
import { encodeEvent } from "./cloud-event.ts";
import type { EventKind } from "./outbox.ts";
import { inTime, type Subscriber } from "./relay.ts";

/**
 * Publishes events, each to the subject that its type is. Those of one subject are published one
 * after the other, so that their order holds even where one of them fails; those of different subjects at once.
 * @param kinds all that the service has
 */
export function publishEvents(
  broker: Broker,
  stream: EventStream,
  kinds: Iterable<EventKind<DescMessage>>,
): Subscriber {
  const schemas = new Map([...kinds].map(({ type, message }) => [type, message]));
  /** The last publication of each subject, since the last flush. */
  let last = new Map<string, Promise<void>>();
  return {
    deliver(event) {
      const schema = schemas.get(event.type);
      if (!schema) throw new Error(`this version has no event ${event.type}`);
      const encoded = encodeEvent(event, schema);
      const before = last.get(event.subject) ?? Promise.resolve();
      const published = before.then(() => broker.publish(stream, event.type, event.id, encoded));
      // It is the flush that tells of a failure.
      published.catch(() => undefined);
      last.set(event.subject, published);
    },
    async flush() {
      const pending = [...last.values()];
      last = new Map();
      await inTime(Promise.all(pending), "the broker did not take the events in time");
    },
  };
}
