/**
 * A connection to NATS JetStream. It is made at first use and again whenever it was lost, however long the broker is
 * away; until then each call fails at once, or within seconds where nobody knows yet. Streams and consumers are made
 * where they are missing: at the start, and after a broker without replicas has lost its disk.
 */
import {
  AckPolicy,
  type ConsumerMessages,
  DeliverPolicy,
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamManager,
  jetstreamManager,
  ReplayPolicy,
  RetentionPolicy,
  StorageType,
  type StreamInfo,
} from "@nats-io/jetstream";
import {
  type ConnectionOptions,
  connect,
  credsAuthenticator,
  headers,
  type NatsConnection,
  nanos,
} from "@nats-io/transport-node";
import type { Logger } from "pino";
import type { UnreadEvents } from "../base/observers.ts";
import type { BrokerSettings } from "./broker-settings.ts";
import type { EncodedEvent } from "./cloud-event.ts";

/** A stream of the broker, and the subjects whose messages it keeps. */
export interface EventStream {
  readonly name: string;
  /** With a wildcard, as in `orders.>`. */
  readonly subjects: string;
}

/** Where a kind of process has read a stream up to, shared by all of them. */
export interface DurableConsumer {
  readonly stream: EventStream;
  readonly name: string;
  /** Only messages of this subject are read. */
  readonly subject: string;
}

export interface Broker {
  /**
   * Makes the stream if it is missing, or gives it the retention and the replicas of the settings. Only its owner does
   * so, once at the start: a shorter retention removes events.
   */
  prepareStream(stream: EventStream): Promise<void>;
  /** Makes the consumer if it is missing, and its stream. */
  ensureConsumer(consumer: DurableConsumer): Promise<void>;
  /**
   * When the stream was made, as the broker says it, which tells it from one of the same name that was made anew and has
   * none of its messages. Makes it if it is missing.
   */
  identify(stream: EventStream): Promise<string>;
  /**
   * Resolves once the stream keeps the message, on most of its replicas. A message with the id of one that was
   * published within ten minutes is not kept again.
   * @param created only to the stream that was made then; rejects if it is another one by now
   */
  publish(
    stream: EventStream,
    subject: string,
    id: string,
    event: EncodedEvent,
    created?: string,
  ): Promise<void>;
  /** Rejects while there is no connection: at once, if one was there and is lost. */
  connected(): Promise<void>;
  /** Messages, each to be acknowledged within 30 seconds; ends after five seconds, or when there are ten. */
  pull(consumer: DurableConsumer): Promise<ConsumerMessages>;
  /** What the consumer has still to acknowledge. Makes nothing that is missing. */
  unread(consumer: DurableConsumer): Promise<UnreadEvents>;
  close(): Promise<void>;
}

/** A broker of which a service needs streams and consumers. */
export interface PreparedBroker {
  /** Makes them if they are missing. Rejects while the broker is away. */
  prepare(): Promise<void>;
}

interface Options {
  readonly settings: BrokerSettings;
  /** What the broker calls this client, for its operators. */
  readonly name: string;
  readonly logger: Logger;
}

/** Milliseconds in which a connection is made or a call answered. */
const timeoutMs = 3_000;
/** Milliseconds between tries to connect again. */
const reconnectMs = 1_000;
/** Milliseconds between pings: a connection on which two are not answered is made anew. */
const pingMs = 5_000;
/** Minutes for which the broker knows the ids of messages. */
const duplicateMinutes = 10;
const dayMs = 24 * 60 * 60 * 1000;
/** Milliseconds after which a message that was not acknowledged is delivered again. */
const acknowledgeMs = 30_000;
const pullMs = 5_000;
/** Few, so that they are handled before they would be delivered again. */
const pulledMessages = 10;

export function createBroker({ settings, name, logger }: Options): Broker {
  let connecting: Promise<NatsConnection> | undefined;
  let connected: NatsConnection | undefined;
  let isClosed = false;
  let isLost = false;
  /** What has been made sure of since the last failure, by name: when its stream was made. */
  const ensured = new Map<string, Promise<string>>();

  /** The connection; while it is lost, the library makes it anew. */
  function connection(): Promise<NatsConnection> {
    if (isClosed) return Promise.reject(new Error("the connection to the broker has been closed"));
    if (isLost) return Promise.reject(new Error("the connection to the broker is lost"));
    connecting ??= connect(connectionOptions(settings, name)).then(opened, (error) => {
      connecting = undefined;
      throw error;
    });
    return connecting;
  }

  function opened(made: NatsConnection): NatsConnection {
    connected = made;
    void watch(made);
    void made.closed().then(() => {
      connecting = undefined;
      connected = undefined;
      isLost = false;
    });
    if (isClosed) void made.close();
    return made;
  }

  async function watch(made: NatsConnection): Promise<void> {
    // The library also says so of each try that the broker refuses.
    for await (const { type } of made.status()) {
      if (type === "disconnect" && !isLost) {
        isLost = true;
        // What is published from now on goes to whatever will be there.
        ensured.clear();
        logger.warn("The connection to the broker was lost");
      }
      if (type === "reconnect" && isLost) {
        isLost = false;
        // It may be another broker, or one that has lost its disk.
        ensured.clear();
        logger.info("The broker is connected again");
      }
    }
  }

  const manager = async () => jetstreamManager(await connection(), { checkAPI: false, timeout: timeoutMs });

  /** Does what needs something of the broker. After a failure, nothing is taken for granted. */
  async function using<T>(
    what: string,
    ensure: () => Promise<string>,
    work: (created: string) => Promise<T>,
  ): Promise<T> {
    try {
      const ensuring = ensured.get(what) ?? ensure();
      ensured.set(what, ensuring);
      return await work(await ensuring);
    } catch (error) {
      ensured.clear();
      throw error;
    }
  }

  const ensureStream = async (stream: EventStream) =>
    (await findOrMakeStream(await manager(), stream, settings)).created;
  async function ensureConsumer(consumer: DurableConsumer): Promise<string> {
    const created = await ensureStream(consumer.stream);
    await makeConsumer(await manager(), consumer);
    return created;
  }

  return {
    prepareStream: async (stream) => prepareStream(await manager(), stream, settings),
    async ensureConsumer(consumer) {
      await ensureConsumer(consumer);
    },
    identify(stream) {
      ensured.delete(stream.name);
      return using(
        stream.name,
        () => ensureStream(stream),
        async (created) => created,
      );
    },
    publish: (stream, subject, id, event, wanted) =>
      using(
        stream.name,
        () => ensureStream(stream),
        async (created) => {
          if (wanted !== undefined && created !== wanted)
            throw new Error(`the stream ${stream.name} is another one: the broker has lost its events`);
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
      await connection();
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
      // All up to the floor are acknowledged, so the next one is the oldest that is not.
      const next = { seq: ack_floor.stream_seq + 1, next_by_subj: subject };
      const oldest = events > 0 ? await streams.getMessage(stream.name, next) : null;
      return { events, oldestSeconds: oldest ? Math.max(0, Date.now() - oldest.time.getTime()) / 1000 : 0 };
    },
    async close() {
      isClosed = true;
      // What is still being connected is closed once it is.
      await connected?.close();
    },
  };
}

function connectionOptions({ servers, credentials, ca }: BrokerSettings, name: string): ConnectionOptions {
  const isSecure = ca !== undefined || servers.some((url) => url.startsWith("tls:"));
  return {
    servers: [...servers],
    // The settings have been checked; what a server says of others has not.
    ignoreClusterUpdates: true,
    name,
    timeout: timeoutMs,
    pingInterval: pingMs,
    maxPingOut: 2,
    maxReconnectAttempts: -1,
    reconnectTimeWait: reconnectMs,
    // A password that is being changed on the broker must not end the connection for good.
    ignoreAuthErrorAbort: true,
    ...(isSecure && { tls: ca === undefined ? {} : { ca } }),
    ...(credentials &&
      ("file" in credentials
        ? { authenticator: credsAuthenticator(new TextEncoder().encode(credentials.file)) }
        : { user: credentials.user, pass: credentials.password })),
  };
}

async function findOrMakeStream(
  { streams }: JetStreamManager,
  { name, subjects }: EventStream,
  settings: BrokerSettings,
): Promise<Pick<StreamInfo, "config" | "created">> {
  try {
    return await streams.info(name);
  } catch (error) {
    if (!isMissing(error, JetStreamApiCodes.StreamNotFound)) throw error;
  }
  return streams.add({
    name,
    subjects: [subjects],
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    ...ofSettings(settings),
  });
}

const ofSettings = ({ replicas, retentionDays }: BrokerSettings) => ({
  num_replicas: replicas,
  max_age: nanos(retentionDays * dayMs),
  duplicate_window: nanos(duplicateMinutes * 60_000),
});

/** What else an operator has changed in the stream stays. */
async function prepareStream(
  manager: JetStreamManager,
  stream: EventStream,
  settings: BrokerSettings,
): Promise<void> {
  const { config } = await findOrMakeStream(manager, stream, settings);
  const wanted = ofSettings(settings);
  const isAsWanted =
    config.subjects.includes(stream.subjects) &&
    config.num_replicas === wanted.num_replicas &&
    config.max_age === wanted.max_age &&
    config.duplicate_window === wanted.duplicate_window;
  const subjects = [...new Set([...config.subjects, stream.subjects])];
  if (!isAsWanted) await manager.streams.update(stream.name, { ...wanted, subjects });
}

/** One that is there stays as it is: another version, or an operator, may have made it. */
async function makeConsumer({ consumers }: JetStreamManager, consumer: DurableConsumer): Promise<void> {
  try {
    await consumers.info(consumer.stream.name, consumer.name);
    return;
  } catch (error) {
    if (!isMissing(error, JetStreamApiCodes.ConsumerNotFound)) throw error;
  }
  await consumers.add(consumer.stream.name, {
    durable_name: consumer.name,
    filter_subject: consumer.subject,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(acknowledgeMs),
    deliver_policy: DeliverPolicy.All,
    replay_policy: ReplayPolicy.Instant,
    max_deliver: -1,
  });
}

function isMissing(error: unknown, code: number): boolean {
  return error instanceof JetStreamApiError && error.code === code;
}
