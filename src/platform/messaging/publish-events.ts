import type { DescMessage } from "@bufbuild/protobuf";
import type { Broker, EventStream } from "./broker.ts";
import { encodeEvent } from "./cloud-event.ts";
import { published as inPublishSpan } from "./event-spans.ts";
import type { EventKind } from "./outbox.ts";
import { inTime, type Subscriber } from "./relay.ts";

const tooLate = "the broker did not take the events in time";

/** Delivers to a stream. */
interface StreamSubscriber extends Subscriber {
  /**
   * When the stream was made: another one of its name has none of the events that were delivered. From then on events are
   * delivered to this one alone, until this is called again.
   */
  identify(): Promise<string>;
}

/**
 * Publishes events, each to the subject that its type is. Those of one subject are published one
 * after the other, so that their order holds even where one of them fails; those of different subjects at once. The
 * order does not hold over a stream that is made anew between two of them, while the connection stays: kept-events.ts.
 * @param kinds all that the service has
 */
export function publishEvents(
  broker: Broker,
  stream: EventStream,
  kinds: Iterable<EventKind<DescMessage>>,
): StreamSubscriber {
  const schemas = new Map([...kinds].map(({ type, message }) => [type, message]));
  /** The last publication of each subject, since the last flush. */
  let last = new Map<string, Promise<void>>();
  /** Of the stream that may be published to; undefined: any. */
  let created: string | undefined;
  /** Something has failed since the stream was last seen: the connection stays while its servers elect a leader. */
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
      // It is the flush that tells of a failure.
      published.catch(() => undefined);
      last.set(event.subject, published);
    },
    async flush() {
      const pending = [...last.values()];
      last = new Map();
      // While the broker is away, nothing is looked for that would be delivered to it.
      await broker.connected();
      if (isInDoubt) await look();
      const [failed] = (await inTime(Promise.allSettled(pending), tooLate)).filter(
        ({ status }) => status === "rejected",
      );
      if (failed?.status !== "rejected") return;
      isInDoubt = true;
      throw failed.reason;
    },
  };
}
