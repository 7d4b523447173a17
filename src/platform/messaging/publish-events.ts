import type { DescMessage } from "@bufbuild/protobuf";
import type { Broker, EventStream } from "./broker.ts";
import { encodeEvent } from "./cloud-event.ts";
import { published as inPublishSpan } from "./event-spans.ts";
import type { EventKind } from "./outbox.ts";
import { type Subscriber, withDeliveryTimeout } from "./relay.ts";

const timedOut = "the broker did not take the events in time";

/** A subscriber that delivers to a stream. */
interface StreamSubscriber extends Subscriber {
  /**
   * Returns when the stream was created, which distinguishes it from a later one of the same name that has none of its
   * events. Events are delivered to this stream alone until the next call.
   */
  identify(): Promise<string>;
}

/**
 * Publishes each event to the NATS subject that is named like its type. Events of one subject (the CloudEvent's) are
 * published one after the other, so that their order holds even if one of them fails; others are published at once.
 * Their order is lost only if the stream is created anew between two of them while the connection stays:
 * kept-events.ts.
 * @param kinds all kinds of events that the service has
 */
export function publishEvents(
  broker: Broker,
  stream: EventStream,
  kinds: Iterable<EventKind<DescMessage>>,
): StreamSubscriber {
  const schemas = new Map([...kinds].map(({ type, message }) => [type, message]));
  /** The last publication of each subject, since the last flush. */
  let last = new Map<string, Promise<void>>();
  /** When the stream was created that may be published to; undefined: any stream of the name. */
  let created: string | undefined;
  /**
   * Whether a call has failed since the stream was last looked up: the connection stays while servers elect a leader.
   */
  let isInDoubt = false;
  async function look(): Promise<string> {
    isInDoubt = true;
    const found = await broker.identify(stream);
    isInDoubt = false;
    return found;
  }
  return {
    async identify() {
      created = await look();
      return created;
    },
    types: [...schemas.keys()],
    async deliver(event) {
      const schema = schemas.get(event.type);
      if (!schema) throw new Error(`this version has no event ${event.type}`);
      const encoded = encodeEvent(event, schema);
      await last.get(event.subject);
      const published = inPublishSpan(event, () =>
        broker.publish(stream, event.type, event.id, encoded, created),
      );
      // The flush rejects if this has failed.
      published.catch(() => undefined);
      last.set(event.subject, published);
    },
    async flush() {
      const pending = [...last.values()];
      last = new Map();
      // While the broker is away, no events are looked for that would be delivered to it.
      await broker.connected();
      if (isInDoubt) await look();
      const [failed] = (await withDeliveryTimeout(Promise.allSettled(pending), timedOut)).filter(
        ({ status }) => status === "rejected",
      );
      if (failed?.status !== "rejected") return;
      isInDoubt = true;
      throw failed.reason;
    },
  };
}
