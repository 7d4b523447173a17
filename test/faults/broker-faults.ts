/** What happens to NATS, and to the events on it: deletions of identities, which push must act on once each. */
import { randomInt } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import {
  type ClusterInfo,
  JetStreamApiCodes,
  JetStreamApiError,
  jetstream,
  jetstreamManager,
} from "@nats-io/jetstream";
import { headers } from "@nats-io/transport-node";
import { authEventStream } from "../../src/auth/events.ts";
import { deletionsConsumer } from "../../src/push/events.ts";
import { findNats, type Nats, startNats, startNatsCluster } from "../support/nats.ts";
import { type Deletions, deletedOf, withBroker } from "./deletions.ts";
import type { Fault, Scene } from "./fault.ts";
import type { WorldOptions } from "./world.ts";

const messageId = "Nats-Msg-Id";
/** Milliseconds for which push gets its events from somebody who returns them. */
const interferenceMs = 6_000;
/** Milliseconds within which three servers of NATS have elected, and have got what one of them lost. */
const ledMs = 10_000;

const oneServer = (): WorldOptions => ({ broker: async () => [await startNats()] });
const threeServers = (): WorldOptions => ({ broker: startNatsCluster });

function deletionsOf({ world: { deletions } }: Scene): Deletions {
  if (!deletions) throw new Error("this deployment has no broker");
  return deletions;
}

/** @returns whether all deletions that were acknowledged until this call have acted */
export function haveActed(scene: Scene): () => Promise<boolean> {
  const deleted = deletedOf(scene.ledger);
  return async () => {
    const acted = await deletionsOf(scene).acted();
    return deleted.every((id) => acted.has(id));
  };
}

/** Why it cannot be played on this machine; undefined if it can. */
export const whyNoNats = () =>
  findNats() === undefined ? "nats-server is not installed (Debian: apt-get install nats-server)" : undefined;

const common = {
  short: false,
  rounds: 10,
  // Callers notice nothing: events wait.
  concerns: "others",
  impossible: whyNoNats,
  recovery: haveActed,
} as const;

const kill: Fault = {
  ...common,
  name: "nats-kill",
  what: "the only server of NATS is killed, and is away for five seconds",
  world: oneServer,
  async play(scene) {
    const [server] = deletionsOf(scene).broker;
    await server?.kill();
    await setTimeout(5_000);
    await server?.restart("kept");
  },
};

const restart: Fault = {
  ...common,
  name: "nats-restart",
  what: "the only server of NATS is killed and started again at once, three times",
  world: oneServer,
  async play(scene) {
    const [server] = deletionsOf(scene).broker;
    for (let left = 3; left > 0; left -= 1) {
      await server?.restart("kept");
      await setTimeout(randomInt(500, 2_000));
    }
  },
};

const duplicates: Fault = {
  ...common,
  name: "nats-duplicates",
  what: "every deletion so far comes again, so late that the broker does not know it, in any order",
  world: oneServer,
  play: (scene) =>
    withBroker(deletionsOf(scene).broker, async (connection) => {
      const { streams } = await jetstreamManager(connection);
      const copies: { at: number; publish: () => Promise<unknown> }[] = [];
      for (let seq = 1; ; ) {
        const query = { next_by_subj: deletionsConsumer.subject, seq };
        const message = await streams.getMessage(authEventStream.name, query);
        if (!message) break;
        seq = message.seq + 1;
        // Copies that an earlier round has made have no id.
        if (!message.header.has(messageId)) continue;
        const copied = headers();
        for (const key of message.header.keys())
          if (key !== messageId) copied.set(key, message.header.get(key));
        const publish = () =>
          jetstream(connection).publish(message.subject, message.data, { headers: copied });
        copies.push({ at: Math.random(), publish });
      }
      for (const { publish } of copies.sort((a, b) => a.at - b.at)) await publish();
    }),
};

const reorder: Fault = {
  ...common,
  name: "nats-reorder",
  what: "deletions are returned to the broker before push gets them, and come again in any order",
  world: oneServer,
  play: (scene) =>
    withBroker(deletionsOf(scene).broker, async (connection) => {
      const consumer = await jetstream(connection).consumers.get(
        authEventStream.name,
        deletionsConsumer.name,
      );
      for (const until = Date.now() + interferenceMs; Date.now() < until; ) {
        const taken = await consumer.fetch({ max_messages: 20, expires: 1_000 });
        for await (const message of taken) message.nak(randomInt(2_000));
      }
      // What was returned last comes again.
      await setTimeout(2_000);
    }),
};

const isGone = (error: unknown) =>
  error instanceof JetStreamApiError &&
  [JetStreamApiCodes.StreamNotFound, JetStreamApiCodes.ConsumerNotFound].some((code) => code === error.code);

/**
 * The clusters of the stream and of the consumer that reads it, as their leaders report them.
 * @returns undefined while one of them has no leader; none where one of them is gone, as no election brings it back
 */
function lookAtClusters(broker: readonly Nats[]): Promise<readonly ClusterInfo[] | undefined> {
  return withBroker(broker, async (connection) => {
    const { streams, consumers } = await jetstreamManager(connection, { timeout: 1_000 });
    const found = await Promise.all([
      streams.info(authEventStream.name),
      consumers.info(authEventStream.name, deletionsConsumer.name),
    ]);
    const clusters = found.flatMap(({ cluster }) => (cluster?.leader ? [cluster] : []));
    return clusters.length === found.length ? clusters : undefined;
  }).catch((error: unknown) => (isGone(error) ? [] : undefined));
}

/** Resolves once both have a leader and meet what is expected of them, or after {@link ledMs}. */
async function untilLed(
  broker: readonly Nats[],
  holds: (cluster: ClusterInfo) => boolean = () => true,
): Promise<void> {
  const end = performance.now() + ledMs;
  while (performance.now() < end && !(await lookAtClusters(broker))?.every(holds)) await setTimeout(100);
}

const diskLost: Fault = {
  ...common,
  name: "nats-disk",
  what: "of three servers of NATS, the one that leads the events is killed and comes back with an empty disk",
  world: threeServers,
  async play(scene) {
    const { broker } = deletionsOf(scene);
    await untilLed(broker);
    const [stream] = (await lookAtClusters(broker)) ?? [];
    const victim = broker[Number(/\d+$/.exec(stream?.leader ?? "")?.[0]) - 1];
    if (!victim) throw new Error("nobody leads the stream");
    await victim.kill();
    await setTimeout(5_000);
    await victim.restart("lost");
    // NATS elects a leader 3 to 10 s after it has lost one: the time-out of its servers is random, and begins anew if
    // none of them gets enough votes. Until then it accepts no event and delivers none.
    await untilLed(broker);
  },
  /** Before the next one goes, this one must have got what it had lost. */
  async settle(scene) {
    const { broker } = deletionsOf(scene);
    await untilLed(
      broker,
      ({ replicas = [] }) =>
        replicas.length === broker.length - 1 && replicas.every(({ current }) => current),
    );
  },
};

export const brokerFaults: readonly Fault[] = [kill, restart, duplicates, reorder, diskLost];
