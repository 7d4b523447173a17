/** The NATS servers that events go through: a cluster that loses one of them, and a server that asks for a password over TLS. */
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { beforeAll, describe, expect, test } from "vitest";
import { AuthEvents } from "../../../src/auth/events.ts";
import { type Broker, createBroker } from "../../../src/platform/messaging/broker.ts";
import {
  type BrokerSettings,
  resolveBrokerSettings,
} from "../../../src/platform/messaging/broker-settings.ts";
import { publishEvents } from "../../../src/platform/messaging/publish-events.ts";
import { captureLog } from "../../support/captured-log.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { findNats, type Nats, startNats, startNatsCluster } from "../../support/nats.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { commonSettings, consumeFrom, deletionOf, stream } from "./deletions-stream.ts";

/** What the broker says of the stream. */
async function infoOf(servers: string[]) {
  const connection = await connect({ servers });
  try {
    return await (await jetstreamManager(connection)).streams.info(stream.name);
  } finally {
    await connection.close();
  }
}

/** The number of the server that leads the stream, from 1, as it is in the servers' names. */
async function leaderOf(servers: string[]): Promise<number> {
  const { cluster } = await infoOf(servers);
  return Number(/\d+$/.exec(cluster?.leader ?? "")?.[0]);
}

async function publishOne(broker: Broker, subject: string): Promise<void> {
  const publisher = publishEvents(broker, stream, Object.values(AuthEvents));
  await publisher.deliver(deletionOf(subject));
  await publisher.flush?.();
}

describe.skipIf(findNats() === undefined)("a cluster of three servers", () => {
  const log = captureLog();
  let servers: readonly Nats[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    servers = await startNatsCluster();
    cleanup.defer(async () => void (await Promise.all(servers.map((server) => server.stop()))));
  });

  test("gives a stream with one replica as many as the settings say, with the events that it has", async () => {
    const urls = servers.map(({ url }) => url);
    const older = createBroker({
      settings: { ...commonSettings, servers: urls, replicas: 1 },
      name: "test",
      logger: log.logger,
    });
    cleanup.defer(() => older.close());
    // The servers elect a leader first.
    await waitFor(() => older.prepareStream(stream));
    await publishOne(older, "kept");
    const { value: settings } = resolveBrokerSettings(
      { BROKER_URL: urls.join(",") },
      { environment: "development", prefix: "AUTH_" },
    );
    if (!settings) throw new Error("there is a broker");
    const newer = createBroker({ settings, name: "test", logger: log.logger });
    cleanup.defer(() => newer.close());
    await waitFor(() => newer.prepareStream(stream));
    await waitFor(async () => {
      const { config, cluster, state } = await infoOf(urls);
      expect([config.num_replicas, cluster?.replicas?.length, state.messages]).toEqual([3, 2, 1]);
    });
    const connection = await connect({ servers: urls });
    await (await jetstreamManager(connection)).streams.delete(stream.name);
    await connection.close();
  });

  test("may lose the one that leads, with its disk: every event that was published arrives", async () => {
    const settings = { ...commonSettings, servers: servers.map(({ url }) => url), replicas: 3 };
    const broker = createBroker({ settings, name: "test", logger: log.logger });
    cleanup.defer(() => broker.close());
    // The servers elect a leader first.
    await waitFor(() => broker.prepareStream(stream));
    const reading = consumeFrom(broker, log);
    /** Delivery is at least once: an event whose acknowledgement was lost with the server comes again. */
    const subjects = () => [...new Set(reading.subjects())];
    const published: string[] = [];
    const publisher = publishEvents(broker, stream, Object.values(AuthEvents));
    const publishNext = async () => {
      const event = deletionOf(`${published.length}`);
      // As the relay does: again, until it has arrived.
      await waitFor(async () => {
        await publisher.deliver(event);
        await publisher.flush?.();
      });
      published.push(event.subject);
    };
    await publishNext();
    const leader = servers[(await leaderOf(settings.servers)) - 1];
    await leader?.kill();
    await publishNext();
    await waitFor(() => expect(subjects()).toEqual(published));
    await leader?.restart("lost");
    await publishNext();
    expect(published).toHaveLength(3);
    await waitFor(() => expect(subjects()).toEqual(published));
    await reading.stop();
  });
});

test.skipIf(findNats() === undefined)(
  "a server that cannot give a stream more replicas goes on taking its events",
  async () => {
    await using cleanup = new AsyncDisposableStack();
    const nats = await startNats();
    cleanup.defer(() => nats.stop());
    const open = (replicas: number) => {
      const settings = { ...commonSettings, servers: [nats.url], replicas };
      const broker = createBroker({ settings, name: "test", logger: captureLog().logger });
      cleanup.defer(() => broker.close());
      return broker;
    };
    await open(1).prepareStream(stream);
    const wanting = open(3);
    await expect(wanting.prepareStream(stream)).rejects.toThrow(/in no cluster; set BROKER_REPLICAS to 1/);
    await publishOne(wanting, "anna");
    // With three replicas the server would not find it any more.
    await nats.restart("kept");
    await waitFor(async () => {
      const { config, state } = await infoOf([nats.url]);
      expect([config.num_replicas, state.messages]).toEqual([1, 1]);
    });
  },
);

test.skipIf(findNats() === undefined)("a broker is signed in to over TLS", async () => {
  await using cleanup = new AsyncDisposableStack();
  const nats = await startNats({ isSecure: true, users: [{ user: "relay", password: "s3cret" }] });
  cleanup.defer(() => nats.stop());
  const open = (settings: Partial<BrokerSettings>) => {
    const credentials = { user: "relay", password: "s3cret" };
    const common = { ...commonSettings, servers: [nats.url], credentials, ca: localhostCertificate.cert };
    const broker = createBroker({
      settings: { ...common, ...settings },
      name: "test",
      logger: captureLog().logger,
    });
    cleanup.defer(() => broker.close());
    return broker;
  };
  await open({}).prepareStream(stream);
  const wrong = { user: "relay", password: "wrong" };
  await expect(open({ credentials: wrong }).prepareStream(stream)).rejects.toThrow(/authorization/i);
  await expect(open({ ca: undefined }).prepareStream(stream)).rejects.toThrow(/certificate/i);
});
