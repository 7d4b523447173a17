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
/** These two where the database was unavailable: it is used again as soon as it is back, whoever has failed before. */
const databaseRetryMs = 250;
const databaseEventRetryMs = 2 * databaseRetryMs;
/** Milliseconds between requests to a broker that is away: few, as each request may itself wait for three seconds. */
const awayMs = 1_000;

/**
 * Handles the events of a consumer, one after the other, until stopped, however long the broker is away. A message that
 * is no event is logged and left out, as it would be none the next time either.
 */
export function startConsuming(consumption: Consumption): Loop {
  const { logger } = consumption;
  const failures = new Failures();
  let reminders = new Reminders();
  return startLoop(async (stopping) => {
    const away = await handleSome(consumption, failures, stopping);
    if (away) {
      if (reminders.isFailureDue(away.err))
        logger.warn({ err: away.err }, "Events could not be fetched from the broker and will be tried again");
      return awayMs;
    }
    reminders = new Reminders();
    return failures.pauseMs;
  });
}

/** Why an event could not be handled. */
type Failure = "of the event" | "of the database";

/** Failures in a row: the pause after one, in which no event is handled. */
class Failures {
  #count = 0;
  /** By performance.now(). */
  #until = 0;

  /** What is left of the pause. */
  get pauseMs(): number {
    return Math.max(0, this.#until - performance.now());
  }

  /** An event was handled, or failed. */
  note(failure: Failure | undefined): void {
    this.#count = failure === "of the event" ? this.#count + 1 : 0;
    if (failure === undefined) return;
    const growing = Math.min(retryMs * 2 ** (this.#count - 1), longestRetryMs);
    this.#until = performance.now() + (failure === "of the event" ? growing : databaseRetryMs);
  }
}

/** @returns the error if messages could not be fetched */
async function handleSome(
  consumption: Consumption,
  failures: Failures,
  stopping: AbortSignal,
): Promise<{ readonly err: unknown } | undefined> {
  const { broker, consumer } = consumption;
  let received = 0;
  try {
    const messages = await broker.pull(consumer);
    const end = () => void messages.close();
    stopping.addEventListener("abort", end);
    if (stopping.aborted) end();
    try {
      for await (const message of messages) {
        received += 1;
        // In a pause they are returned, to come again after it. If the fetch was ended, those on their way from the
        // broker would be lost to this process, and come again only once their time to be acknowledged is over.
        const { pauseMs } = failures;
        if (stopping.aborted) message.nak(retryMs);
        else if (pauseMs > 0) message.nak(Math.ceil(pauseMs));
        else failures.note(await handleMessage(message, consumption));
      }
    } finally {
      stopping.removeEventListener("abort", end);
    }
  } catch (err) {
    // While events are handled, the library may miss the broker's heartbeats.
    if (received === 0 && !stopping.aborted) return { err };
  }
  return undefined;
}

/** @returns why the event failed, if it did. It comes again, and others after it, as they would probably fail too */
async function handleMessage(
  message: JsMsg,
  { schema, handle, logger }: Consumption,
): Promise<Failure | undefined> {
  // The messages before this one may have taken most of the time until it would be delivered again.
  message.working();
  let event: CloudEvent;
  try {
    event = decodeEvent((name) => message.headers?.get(name), message.data, schema);
  } catch (err) {
    const { stream, streamSequence: sequence } = message.info;
    logger.error({ err, stream, sequence }, "A message of the broker is no event and was left out");
    message.term();
    return undefined;
  }
  try {
    await processed("nats", event, () => handle(event));
    message.ack();
    return undefined;
  } catch (err) {
    const isAway = isDatabaseAway(err);
    logger.warn({ err, type: event.type }, "An event could not be handled and will come again");
    message.nak(
      isAway
        ? databaseEventRetryMs
        : Math.min(retryMs * 2 ** message.info.deliveryCount, longestEventRetryMs),
    );
    return isAway ? "of the database" : "of the event";
  }
}
