import type { DescMessage } from "@bufbuild/protobuf";
import type { ConsumerMessages } from "@nats-io/jetstream";
import type { Logger } from "pino";
import { type Loop, startLoop } from "../base/loop.ts";
import type { Broker, DurableConsumer } from "./broker.ts";
import { type CloudEvent, decodeEvent } from "./cloud-event.ts";

interface Consumption {
  readonly broker: Broker;
  readonly consumer: DurableConsumer;
  /** Of the data of the events. */
  readonly schema: DescMessage;
  /** Acts on an event. It may come again. If it rejects, the event comes again after a while. */
  readonly take: (event: CloudEvent) => Promise<void>;
  readonly logger: Logger;
}

/** Milliseconds after which what failed is tried again: first, and at most. */
const retryMs = 1_000;
const longestRetryMs = 15_000;

/**
 * Takes the events of a consumer, one after the other, until stopped; however long the broker is away. What is no event
 * is reported and left out: it would be none the next time either.
 */
export function startConsuming(consumption: Consumption): Loop {
  const { broker, consumer, logger } = consumption;
  let failures = 0;
  return startLoop(async (stopping) => {
    try {
      const messages = await broker.pull(consumer);
      const end = () => void messages.close();
      stopping.addEventListener("abort", end);
      if (stopping.aborted) end();
      await takeAll(messages, consumption).finally(() => stopping.removeEventListener("abort", end));
      failures = 0;
      return 0;
    } catch (err) {
      failures += 1;
      logger.warn({ err }, "Events could not be fetched from the broker and will be tried again");
      return Math.min(retryMs * 2 ** (failures - 1), longestRetryMs);
    }
  });
}

async function takeAll(messages: ConsumerMessages, { schema, take, logger }: Consumption): Promise<void> {
  for await (const message of messages) {
    const { info } = message;
    let event: CloudEvent;
    try {
      event = decodeEvent((name) => message.headers?.get(name), message.data, schema);
    } catch (err) {
      const { stream, streamSequence: sequence } = info;
      logger.error({ err, stream, sequence }, "A message of the broker is no event and was left out");
      message.term();
      continue;
    }
    try {
      await take(event);
      message.ack();
    } catch (err) {
      logger.warn({ err, type: event.type }, "An event could not be handled and will come again");
      message.nak(Math.min(retryMs * 2 ** (info.deliveryCount - 1), longestRetryMs));
    }
  }
}
