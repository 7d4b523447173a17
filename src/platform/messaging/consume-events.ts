import type { DescMessage } from "@bufbuild/protobuf";
import type { JsMsg } from "@nats-io/jetstream";
import type { Logger } from "pino";
import { type Loop, startLoop } from "../base/loop.ts";
import { Reminders } from "../base/reminders.ts";
import type { Broker, DurableConsumer } from "./broker.ts";
import { type CloudEvent, decodeEvent } from "./cloud-event.ts";
import { processed } from "./event-spans.ts";

interface Consumption {
  readonly broker: Broker;
  readonly consumer: DurableConsumer;
  /** Of the data of the events. */
  readonly schema: DescMessage;
  /** Acts on an event. It may come again. If it rejects, the event comes again after a while. */
  readonly take: (event: CloudEvent) => Promise<void>;
  readonly logger: Logger;
}

/** Milliseconds after which others are tried once an event has failed: first, and at most. */
const retryMs = 1_000;
const longestRetryMs = 15_000;
/** The same for the event itself, at most. It takes longer, so that one that fails each time holds up no other. */
const longestEventRetryMs = 2 * longestRetryMs;
/**
 * Milliseconds after which a broker is asked again that is away, which costs nobody anything. Few, as the request before
 * may have waited for three seconds.
 */
const awayMs = 1_000;

/**
 * Takes the events of a consumer, one after the other, until stopped; however long the broker is away. What is no event
 * is reported and left out: it would be none the next time either.
 */
export function startConsuming(consumption: Consumption): Loop {
  const { logger } = consumption;
  let failures = 0;
  let reminders = new Reminders();
  return startLoop(async (stopping) => {
    const { hasFailed, away } = await takeSome(consumption, stopping);
    if (away) {
      if (reminders.isFailureDue(away.err))
        logger.warn({ err: away.err }, "Events could not be fetched from the broker and will be tried again");
      return awayMs;
    }
    reminders = new Reminders();
    failures = hasFailed ? failures + 1 : 0;
    return hasFailed ? Math.min(retryMs * 2 ** (failures - 1), longestRetryMs) : 0;
  });
}

/** @returns whether an event failed; and what fetching failed with, if the broker could not be asked */
async function takeSome(
  consumption: Consumption,
  stopping: AbortSignal,
): Promise<{ readonly hasFailed: boolean; readonly away?: { readonly err: unknown } }> {
  const { broker, consumer } = consumption;
  let handled = 0;
  let hasFailed = false;
  try {
    const messages = await broker.pull(consumer);
    const end = () => void messages.close();
    stopping.addEventListener("abort", end);
    if (stopping.aborted) end();
    try {
      for await (const message of messages) {
        // What is left of the batch comes again, to this worker or to another one.
        if (stopping.aborted || hasFailed) message.nak(retryMs);
        else if (await handle(message, consumption)) handled += 1;
        else {
          hasFailed = true;
          end();
        }
      }
    } finally {
      stopping.removeEventListener("abort", end);
    }
  } catch (err) {
    // While events are handled, the library may miss the broker's heartbeats.
    if (handled === 0 && !hasFailed && !stopping.aborted) return { hasFailed, away: { err } };
  }
  return { hasFailed };
}

/** @returns false if the event failed, so that others would fail too: it comes again, and they after it */
async function handle(message: JsMsg, { schema, take, logger }: Consumption): Promise<boolean> {
  // Those before it have taken their time.
  message.working();
  let event: CloudEvent;
  try {
    event = decodeEvent((name) => message.headers?.get(name), message.data, schema);
  } catch (err) {
    const { stream, streamSequence: sequence } = message.info;
    logger.error({ err, stream, sequence }, "A message of the broker is no event and was left out");
    message.term();
    return true;
  }
  try {
    await processed("nats", event, () => take(event));
    message.ack();
    return true;
  } catch (err) {
    logger.warn({ err, type: event.type }, "An event could not be handled and will come again");
    message.nak(Math.min(retryMs * 2 ** message.info.deliveryCount, longestEventRetryMs));
    return false;
  }
}
