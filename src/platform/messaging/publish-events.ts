import type { DescMessage } from "@bufbuild/protobuf";
import type { Broker, EventStream } from "./broker.ts";
import { encodeEvent } from "./cloud-event.ts";
import { published as inPublishSpan } from "./event-spans.ts";
import type { EventKind } from "./outbox.ts";
import { type Subscriber, withDeliveryTimeout } from "./subscribers.ts";

const timedOut = "the broker did not take the events in time";

/**
 * Publishes each event to the subject named like its type: those of one `subject` one after the other, others at once.
 */
export function publishEvents(
  broker: Broker,
  stream: EventStream,
  kinds: Iterable<EventKind<DescMessage>>,
): Subscriber {
  const schemas = new Map([...kinds].map(({ type, message }) => [type, message]));
  /** The last publication of each subject, since the last flush. */
  let last = new Map<string, Promise<void>>();
  /** Whether an event has failed since the stream was last seen: the connection stays while servers elect a leader. */
  let isInDoubt = false;
  return {
    types: [...schemas.keys()],
    async deliver(event) {
      const schema = schemas.get(event.type);
      if (!schema) throw new Error(`this version has no event ${event.type}`);
      const encoded = encodeEvent(event, schema);
      await last.get(event.subject);
      const published = inPublishSpan(event, () => broker.publish(stream, event.type, event.id, encoded));
      // The flush rejects if this has failed.
      published.catch(() => undefined);
      last.set(event.subject, published);
    },
    async flush() {
      const pending = [...last.values()];
      last = new Map();
      // While the broker is away, no events are looked for that would be delivered to it.
      await broker.connected();
      if (isInDoubt) await broker.ensureStream(stream);
      isInDoubt = false;
      const [failed] = (await withDeliveryTimeout(Promise.allSettled(pending), timedOut)).filter(
        ({ status }) => status === "rejected",
      );
      if (failed?.status !== "rejected") return;
      isInDoubt = true;
      throw failed.reason;
    },
  };
}
