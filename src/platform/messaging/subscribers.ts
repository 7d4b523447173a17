/** Who gets the events of an outbox. */
import type { Logger } from "pino";
import type { CloudEvent } from "./cloud-event.ts";
import { processed } from "./event-spans.ts";
import type { DeliverableTypes } from "./outbox.ts";

/** A receiver of events, which gets them in order. If a call rejects, the batch is delivered again later. */
export interface Subscriber extends DeliverableTypes {
  deliver(event: CloudEvent): Promise<void> | void;
  /** Resolves once what was delivered has arrived; before and after a batch. Rejects while nothing can be. */
  flush?(): Promise<void>;
}

/** The timeout of a subscriber for one event, and for a flush, in milliseconds: the relay holds its lease meanwhile. */
export const deliveryTimeoutMs = 4_000;

/** A subscriber whose deliveries have a timeout, after which the event is delivered again. */
export function subscriberWithTimeout(deliver: (event: CloudEvent) => Promise<void>): Subscriber {
  return {
    deliver: (event) =>
      withDeliveryTimeout(
        processed("in-process", event, () => deliver(event)),
        `a subscriber took too long for ${event.type}`,
      ),
  };
}

/** Rejects with the problem after the timeout of a delivery. A timer costs less than the error of an aborted signal. */
export function withDeliveryTimeout<T>(work: Promise<T>, problem: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(problem)), deliveryTimeoutMs);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/** Writes each event as a line of a log, those of `warningTypes` as warnings. If nobody reads it, events wait. */
export function logEvents(logger: Logger, warningTypes: readonly string[] = []): Subscriber {
  const log = logger.child({}, { level: "info" });
  // In the file, or in the pipe: the operating system has all lines so far.
  const flushed = () =>
    new Promise<void>((resolve, reject) => {
      log.flush((error) => (error ? reject(error) : resolve()));
    });
  return {
    deliver({ id, type, subject, time, data }) {
      log[warningTypes.includes(type) ? "warn" : "info"](
        { event: { id, type, subject, time, data } },
        "Event",
      );
    },
    // A batch is written only when no line waits before it, so that no event is dropped, and at most a batch waits.
    flush: () => withDeliveryTimeout(flushed(), "nobody reads the log of events"),
  };
}
