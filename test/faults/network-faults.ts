/** What happens to the network of one process: for ten seconds it reaches nobody. */
import { setTimeout } from "node:timers/promises";
import type { DatabaseWire } from "../support/database-wire.ts";
import { findNats, startNats } from "../support/nats.ts";
import { findRedis, startRedis } from "../support/redis.ts";
import { haveActed } from "./broker-faults.ts";
import { isUsed } from "./cache-faults.ts";
import type { Fault } from "./fault.ts";

const partitionMs = 10_000;

/**
 * A process that is cut off. Its connections of before swallow what is sent on them, also when the network is back, and
 * neither end notices until all has recovered.
 * @param block what becomes of new connections meanwhile. @returns ends that
 */
function partition(
  name: string,
  what: string,
  block: (way: DatabaseWire) => () => void | Promise<void>,
): Fault {
  return {
    name,
    what: `one process is cut off for ten seconds: its connections swallow what is sent on them, ${what}`,
    short: true,
    rounds: 10,
    concerns: "others",
    async play({ world: { members } }) {
      const { ways } = members[1];
      for (const way of ways) way.strand();
      const ends = ways.map(block);
      await setTimeout(partitionMs);
      for (const end of ends) await end();
    },
    // The proxy answers keepalives, so it also does what comes of them where nobody does.
    async settle({ world: { members } }) {
      for (const way of members[1].ways) way.giveUpStranded();
    },
  };
}

const hanging = partition("partition", "and new ones hang", (way) => way.hang());

const fromAll: Fault = {
  ...hanging,
  name: "partition-all",
  what: `${hanging.what}, those to NATS and Redis too`,
  short: false,
  impossible() {
    if (findNats() === undefined) return "nats-server is not installed (Debian: apt-get install nats-server)";
    if (findRedis() === undefined)
      return "redis-server is not installed (Debian: apt-get install redis-server)";
    return undefined;
  },
  world: () => ({ broker: async () => [await startNats()], cache: startRedis, hasWays: true }),
  recovery(scene) {
    const hasActed = haveActed(scene);
    return async () => (await isUsed(scene)) && hasActed();
  },
};

export const networkFaults: readonly Fault[] = [
  hanging,
  {
    ...partition("partition-refused", "and new ones are refused", (way) => way.refuse()),
    short: false,
  },
  fromAll,
];
