/** The streams and consumers of NATS JetStream: looks them up, and makes them if they are missing. */
import {
  AckPolicy,
  DeliverPolicy,
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamManager,
  ReplayPolicy,
  RetentionPolicy,
  StorageType,
  type StreamInfo,
} from "@nats-io/jetstream";
import { millis, nanos } from "@nats-io/transport-node";
import type { BrokerSettings } from "./broker-settings.ts";

/** A stream of the broker, and the subjects whose messages it keeps. */
export interface EventStream {
  readonly name: string;
  /** A pattern with a wildcard, as in `orders.>`. */
  readonly subjects: string;
}

/** The position up to which a stream has been read, shared by all processes of one kind. */
export interface DurableConsumer {
  readonly stream: EventStream;
  readonly name: string;
  readonly subject: string;
}

/** Minutes for which the broker knows the ids of messages. */
const duplicateMinutes = 10;
const dayMs = 24 * 60 * 60 * 1000;
/** Milliseconds after which a message that was not acknowledged is delivered again. */
const acknowledgeMs = 30_000;

/** Looks up a stream, and makes it if it is missing. */
export async function findOrMakeStream(
  { streams }: JetStreamManager,
  { name, subjects }: EventStream,
  settings: BrokerSettings,
): Promise<Pick<StreamInfo, "cluster" | "config">> {
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

/** The part of a stream's configuration that the settings decide. */
const ofSettings = ({ replicas, retentionDays }: BrokerSettings) => ({
  num_replicas: replicas,
  max_age: nanos(retentionDays * dayMs),
  duplicate_window: nanos(duplicateMinutes * 60_000),
});

/** The days for which a stream with this configuration keeps a message; infinite without a limit. */
export function retentionDaysOf({ max_age }: Pick<StreamInfo["config"], "max_age">): number {
  return max_age > 0 ? millis(max_age) / dayMs : Number.POSITIVE_INFINITY;
}

/** Makes the stream if it is missing, or gives it the settings. What else an operator has changed in it stays. */
export async function prepareStream(
  manager: JetStreamManager,
  stream: EventStream,
  settings: BrokerSettings,
): Promise<void> {
  const { cluster, config } = await findOrMakeStream(manager, stream, settings);
  const wanted = ofSettings(settings);
  // A server alone would take the number, and would not find the stream at its next start.
  if (cluster === undefined && wanted.num_replicas > 1)
    throw new Error(
      `the stream ${stream.name} cannot have ${wanted.num_replicas} replicas, as its server is in no cluster; set BROKER_REPLICAS to 1`,
    );
  const isAsWanted =
    config.subjects.includes(stream.subjects) &&
    config.num_replicas === wanted.num_replicas &&
    config.max_age === wanted.max_age &&
    config.duplicate_window === wanted.duplicate_window;
  const subjects = [...new Set([...config.subjects, stream.subjects])];
  if (!isAsWanted) await manager.streams.update(stream.name, { ...wanted, subjects });
}

/** Makes the consumer if it is missing. If it is there it stays as it is, as an operator may have changed it. */
export async function makeConsumer(
  { consumers }: JetStreamManager,
  consumer: DurableConsumer,
): Promise<void> {
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
