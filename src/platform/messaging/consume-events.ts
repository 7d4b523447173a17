import type { DescMessage } from "@bufbuild/protobuf";
import type { JsMsg } from "@nats-io/jetstream";
import type { Logger } from "pino";
import { isDatabaseAway } from "../base/database-errors.ts";
import { type Loop, startLoop } from "../base/loop.ts";
import { Reminders } from "../base/reminders.ts";
import type { Broker, DurableConsumer } from "./broker.ts";
import { type CloudEvent, decodeEvent } from "./cloud-event.ts";
import { processed } from "./event-spans.ts";

interface Consumption {
  readonly broker: Broker;
  readonly consumer: DurableConsumer;
  readonly schema: DescMessage;
  /** Handles an event, which may come again. If this rejects, the event comes again after a while. */
  readonly handle: (event: CloudEvent) => Promise<void>;
  readonly logger: Logger;
}

/** Milliseconds after a failure in which no event is handled, as others would probably fail too. */
const pauseMs = 1_000;
/** The same where the database was unavailable: it is used again as soon as it is back. */
const databasePauseMs = 250;
/** The longest pause until the failed event comes again; it is doubled each time from {@link pauseMs} on. */
const longestRetryMs = 30_000;
/** Milliseconds between requests to a broker that is away: few, as each request may itself wait for three seconds. */
const awayMs = 1_000;

/**
 * Handles a consumer's events one after the other, until stopped. A message that is no event is logged and left out.
 */
export function startConsuming(consumption: Consumption): Loop {
  const { logger } = consumption;
  let reminders = new Reminders();
  return startLoop(async (stopping) => {
    try {
      const pausedUntil = await handleSome(consumption, stopping);
      reminders = new Reminders();
      return Math.max(0, pausedUntil - performance.now());
    } catch (err) {
      if (reminders.isFailureDue(err))
        logger.warn({ err }, "Events could not be fetched from the broker and will be tried again");
      return awayMs;
    }
  });
}

/** @returns until when no event is to be handled, by performance.now() @throws if messages could not be fetched */
async function handleSome(consumption: Consumption, stopping: AbortSignal): Promise<number> {
  const { broker, consumer } = consumption;
  let received = 0;
  let pausedUntil = 0;
  try {
    const messages = await broker.pull(consumer);
    const end = () => void messages.close();
    stopping.addEventListener("abort", end);
    if (stopping.aborted) end();
    try {
      for await (const message of messages) {
        received += 1;
        // In a pause they are returned, to come again after it; had the fetch ended, those on their way would be late.
        const leftMs = pausedUntil - performance.now();
        if (stopping.aborted) message.nak(pauseMs);
        else if (leftMs > 0) message.nak(Math.ceil(leftMs));
        else pausedUntil = performance.now() + (await handleMessage(message, consumption));
      }
    } finally {
      stopping.removeEventListener("abort", end);
    }
  } catch (err) {
    // While events are handled, the library may miss the broker's heartbeats.
    if (received === 0 && !stopping.aborted) throw err;
  }
  return pausedUntil;
}

/** @returns milliseconds in which no other event is to be handled: 0 unless this one failed, and comes again */
async function handleMessage(message: JsMsg, { schema, handle, logger }: Consumption): Promise<number> {
  // The messages before this one may have taken most of the time until it would be delivered again.
  message.working();
  let event: CloudEvent;
  try {
    event = decodeEvent((name) => message.headers?.get(name), message.data, schema);
  } catch (err) {
    const { stream, streamSequence: sequence } = message.info;
    logger.error({ err, stream, sequence }, "A message of the broker is no event and was left out");
    message.term();
    return 0;
  }
  try {
    await processed("nats", event, () => handle(event));
    message.ack();
    return 0;
  } catch (err) {
    logger.warn({ err, type: event.type }, "An event could not be handled and will come again");
    const isAway = isDatabaseAway(err);
    // Longer than the pause, so that an event that fails each time holds up no other.
    const growing = Math.min(pauseMs * 2 ** message.info.deliveryCount, longestRetryMs);
    message.nak(isAway ? 2 * databasePauseMs : growing);
    return isAway ? databasePauseMs : pauseMs;
  }
}
