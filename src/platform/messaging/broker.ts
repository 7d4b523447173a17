/** The broker: NATS JetStream. Streams and consumers are made where they are missing, also after the loss of a disk. */
import { type ConsumerMessages, jetstreamManager } from "@nats-io/jetstream";
import { headers } from "@nats-io/transport-node";
import type { Logger } from "pino";
import type { UnreadEvents } from "../base/observers.ts";
import type { BrokerSettings } from "./broker-settings.ts";
import type { EncodedEvent } from "./cloud-event.ts";
import {
  type DurableConsumer,
  type EventStream,
  findOrMakeStream,
  makeConsumer,
  prepareStream,
  retentionDaysOf,
} from "./jetstream.ts";
import { createNatsConnection, timeoutMs } from "./nats-connection.ts";

export type { DurableConsumer, EventStream } from "./jetstream.ts";

export interface Broker {
  /** Makes the stream, or gives it the settings, which may remove events: for its owner, once. */
  prepareStream(stream: EventStream): Promise<void>;
  /** Makes the consumer and its stream if they are missing. */
  ensureConsumer(consumer: DurableConsumer): Promise<void>;
  /** Looks the stream up at the broker, and makes it if it is missing. Rejects while the stream has no leader. */
  ensureStream(stream: EventStream): Promise<void>;
  /** Resolves once most replicas keep the message; one with an id of the last ten minutes is dropped. */
  publish(stream: EventStream, subject: string, id: string, event: EncodedEvent): Promise<void>;
  /** Rejects while there is no connection: at once, if there was one that is lost. */
  connected(): Promise<void>;
  /** Fetches messages, each to be acknowledged within 30 seconds; ends after ten messages, or after five seconds. */
  pull(consumer: DurableConsumer): Promise<ConsumerMessages>;
  /** The events that the consumer has not acknowledged. Makes no stream and no consumer. */
  unread(consumer: DurableConsumer): Promise<UnreadEvents>;
  /** Days for which the stream keeps a message, whoever has set them; infinite without a limit. Makes no stream. */
  retentionDays(stream: EventStream): Promise<number>;
  close(): Promise<void>;
}

/** The broker of a service, with the streams and consumers that it needs. */
export interface PreparedBroker {
  /** Makes the streams and consumers if they are missing. Rejects while the broker is away. */
  prepare(): Promise<void>;
}

interface Options {
  readonly settings: BrokerSettings;
  readonly name: string;
  readonly logger: Logger;
}

/** Milliseconds for which a fetch waits for messages. */
const pullMs = 5_000;
/** The most messages of a fetch: few, so that they are handled before they would be delivered again. */
const pulledMessages = 10;

export function createBroker({ settings, name, logger }: Options): Broker {
  /** The streams and consumers that were seen since the last failure, by name. */
  const ensured = new Map<string, Promise<void>>();

  const connection = createNatsConnection({ settings, name, logger, changed: () => ensured.clear() });
  const manager = async () =>
    jetstreamManager(await connection.get(), { checkAPI: false, timeout: timeoutMs });

  /** Calls `work` once the stream or consumer is there. After a failure, each of them is looked up again. */
  async function using<T>(key: string, ensure: () => Promise<void>, work: () => Promise<T>): Promise<T> {
    try {
      const ensuring = ensured.get(key) ?? ensure();
      ensured.set(key, ensuring);
      await ensuring;
      return await work();
    } catch (error) {
      ensured.clear();
      throw error;
    }
  }

  async function ensureStream(stream: EventStream): Promise<void> {
    await findOrMakeStream(await manager(), stream, settings);
  }
  async function ensureConsumer(consumer: DurableConsumer): Promise<void> {
    await ensureStream(consumer.stream);
    await makeConsumer(await manager(), consumer);
  }

  return {
    prepareStream: async (stream) => prepareStream(await manager(), stream, settings),
    ensureConsumer,
    ensureStream,
    publish: (stream, subject, id, event) =>
      using(
        stream.name,
        () => ensureStream(stream),
        async () => {
          const fields = headers();
          for (const [key, value] of event.headers) fields.set(key, value);
          await (await manager()).jetstream().publish(subject, event.payload, {
            msgID: id,
            headers: fields,
            timeout: timeoutMs,
            expect: { streamName: stream.name },
          });
        },
      ),
    async connected() {
      await connection.get();
    },
    pull: (consumer) =>
      using(
        `${consumer.stream.name} ${consumer.name}`,
        () => ensureConsumer(consumer),
        async () => {
          const { consumers } = (await manager()).jetstream();
          const found = await consumers.get(consumer.stream.name, consumer.name);
          return found.fetch({ max_messages: pulledMessages, expires: pullMs });
        },
      ),
    async unread({ stream, name: consumer, subject }) {
      const { consumers, streams } = await manager();
      const { num_pending, num_ack_pending, ack_floor } = await consumers.info(stream.name, consumer);
      const events = num_pending + num_ack_pending;
      // All messages up to the floor are acknowledged, so the next one is the oldest that is not.
      const next = { seq: ack_floor.stream_seq + 1, next_by_subj: subject };
      const oldest = events > 0 ? await streams.getMessage(stream.name, next) : null;
      return { events, oldestSeconds: oldest ? Math.max(0, Date.now() - oldest.time.getTime()) / 1000 : 0 };
    },
    async retentionDays({ name }) {
      const { config } = await (await manager()).streams.info(name);
      return retentionDaysOf(config);
    },
    close: () => connection.close(),
  };
}
