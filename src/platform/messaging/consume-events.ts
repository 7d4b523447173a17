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
  /** The schema of the events' data. */
  readonly schema: DescMessage;
  /** Handles an event, which may come again. If this rejects, the event comes again after a while. */
  readonly handle: (event: CloudEvent) => Promise<void>;
  readonly logger: Logger;
}

/** Milliseconds after a failed event until others are tried: after the first failure, and at most. */
const retryMs = 1_000;
const longestRetryMs = 15_000;
/** The longest pause until the failed event comes again. It is longer, so that an event that fails delays no other. */
const longestEventRetryMs = 2 * longestRetryMs;
/** Milliseconds between requests to a broker that is away: few, as each request may itself wait for three seconds. */
const awayMs = 1_000;

/**
 * Handles the events of a consumer, one after the other, until stopped, however long the broker is away. A message that
 * is no event is logged and left out, as it would be none the next time either.
 */
export function startConsuming(consumption: Consumption): Loop {
  const { logger } = consumption;
  let failures = 0;
  let reminders = new Reminders();
  return startLoop(async (stopping) => {
    const { hasFailed, away } = await handleSome(consumption, stopping);
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

/** @returns whether an event failed, and the error if messages could not be fetched */
async function handleSome(
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
        // The rest of the batch comes again, to this worker or to another one.
        if (stopping.aborted || hasFailed) message.nak(retryMs);
        else if (await handleMessage(message, consumption)) handled += 1;
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

/** @returns false if the event failed, so that others would probably fail too: it comes again, and they after it */
async function handleMessage(message: JsMsg, { schema, handle, logger }: Consumption): Promise<boolean> {
  // The messages before this one may have taken most of the time until it would be delivered again.
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
    await processed("nats", event, () => handle(event));
    message.ack();
    return true;
  } catch (err) {
    logger.warn({ err, type: event.type }, "An event could not be handled and will come again");
    message.nak(Math.min(retryMs * 2 ** message.info.deliveryCount, longestEventRetryMs));
    return false;
  }
}
