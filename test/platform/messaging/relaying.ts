/** Processes that relay the events of auth to NATS, where they are kept for replay, and what the stream has. */
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { onTestFinished } from "vitest";
import { AuthEvents } from "../../../src/auth/events.ts";
import { brokerStreams, keptEvents, outbox, relayLeases } from "../../../src/auth/schema.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { createBroker } from "../../../src/platform/messaging/broker.ts";
import { publishEvents } from "../../../src/platform/messaging/publish-events.ts";
import { startRelay } from "../../../src/platform/messaging/relay.ts";
import { captureLog } from "../../support/captured-log.ts";
import type { Nats } from "../../support/nats.ts";

export const stream = { name: "gatepost-auth", subjects: "auth.>" };
export const where = { kept: keptEvents, streams: brokerStreams, stream: stream.name, hours: 24 };

/** An event as it is told here: whose it is, and the how-manyth of that subject. */
export interface Written {
  readonly id: string;
  readonly subject: string;
}

type RelaySettings = Parameters<typeof startRelay>[0];

interface Options extends Partial<Pick<RelaySettings, "intervalMs" | "mayDeliver">> {
  /** Whether the setting is set; it is unless given. */
  readonly keeps?: boolean;
}

export async function relaying(nats: Nats, db: Database, { keeps = true, ...more }: Options = {}) {
  const log = captureLog();
  const settings = { servers: [nats.url], credentials: undefined, ca: undefined };
  const broker = createBroker({
    settings: { ...settings, replicas: 1, retentionDays: 7, replayHours: keeps ? where.hours : 0 },
    name: "test",
    logger: log.logger,
  });
  const publisher = publishEvents(broker, stream, Object.values(AuthEvents));
  let looks = 0;
  const identify = () => {
    looks += 1;
    return publisher.identify();
  };
  const relay = startRelay({
    ...{ db, outbox, leases: relayLeases, logger: log.logger, subscribers: [publisher] },
    source: "https://id.example.com/api/auth",
    ...(keeps && { replay: { ...where, identify } }),
    intervalMs: 20,
    inParts: true,
    ...more,
  });
  let stopping: Promise<void> | undefined;
  function stop(): Promise<void> {
    stopping ??= relay.stop().then(() => broker.close());
    return stopping;
  }
  // Also of a test that has failed.
  onTestFinished(stop);
  return {
    log,
    /** How often the broker was asked which stream it is. */
    looks: () => looks,
    stop,
  };
}

async function withStreams<T>(
  { url }: Nats,
  work: (streams: JetStreamManager["streams"]) => Promise<T>,
): Promise<T> {
  const connection = await connect({ servers: url });
  try {
    return await work((await jetstreamManager(connection)).streams);
  } finally {
    await connection.close();
  }
}

/** What the stream has, in its order. Not while it is deleted: of that, NATS 2.9.10 ends with a nil pointer. */
export const received = (nats: Nats): Promise<Written[]> =>
  withStreams(nats, async (streams) => {
    const { state } = await streams.info(stream.name);
    const found: Written[] = [];
    for (let seq = 1; seq <= state.last_seq; seq += 1) {
      const message = await streams.getMessage(stream.name, { seq });
      const [id = "", subject = ""] = ["ce-id", "ce-subject"].map((name) => message?.header.get(name));
      found.push({ id, subject });
    }
    return found;
  });

/** Somebody else makes the stream anew, while all connections go on. */
export const makeAnew = (nats: Nats): Promise<void> =>
  withStreams(nats, async (streams) => {
    const { config } = await streams.info(stream.name);
    await streams.delete(stream.name);
    await streams.add(config);
  });
