/** What happens to connections between the servers and PostgreSQL. */
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import type { Fault } from "./fault.ts";
import type { World } from "./world.ts";

const halfOpen: Fault = {
  name: "half-open",
  what: "all connections of one process swallow what is sent on them, while new ones work",
  short: true,
  concerns: "others",
  async play({ world: { members } }) {
    members[1].wire.strand();
    // They stay so: what counts as the recovery is what is still refused after this time.
    await setTimeout(6_000);
  },
  async settle({ world: { members } }) {
    members[1].wire.giveUpStranded();
  },
};

const slow: Fault = {
  name: "latency",
  what: "what one process and PostgreSQL say to each other takes 100 ms longer, each way",
  short: false,
  concerns: "others",
  async play({ world: { members } }) {
    members[1].wire.delay(100);
    await setTimeout(10_000);
    members[1].wire.delay(0);
  },
};

const reset: Fault = {
  name: "reset",
  what: "the connections of one process are reset, again and again",
  short: false,
  concerns: "others",
  async play({ world: { members } }) {
    for (const until = Date.now() + 8_000; Date.now() < until; await setTimeout(100)) members[1].wire.reset();
  },
};

async function terminateAll({ admin, user }: World): Promise<void> {
  await admin`select pg_terminate_backend(pid) from pg_stat_activity where usename = ${user}`;
}

const terminate: Fault = {
  name: "terminate",
  what: "PostgreSQL ends all connections of the servers, again and again",
  short: false,
  concerns: "everybody",
  async play({ world, isShort }) {
    for (const until = Date.now() + (isShort ? 3_000 : 10_000); Date.now() < until; await setTimeout(50))
      await terminateAll(world);
  },
};

const connectionsTaken: Fault = {
  name: "connections",
  what: "somebody else takes all connections that PostgreSQL has, and the servers lose theirs",
  short: false,
  concerns: "everybody",
  async play({ world, isShort }) {
    const { admin, cluster } = world;
    await admin`create role hog login`;
    const url = new URL(cluster.url);
    url.username = "hog";
    const taken = new Set<postgres.Sql>();
    async function take(): Promise<void> {
      const one = postgres(url.href, { max: 1, idle_timeout: 0, onnotice: () => undefined });
      try {
        await one`select 1`;
        taken.add(one);
      } catch {
        // None is left at the moment.
        await one.end({ timeout: 0 });
      }
    }
    for (const until = Date.now() + (isShort ? 3_000 : 10_000); Date.now() < until; await setTimeout(20)) {
      await terminateAll(world);
      await Promise.all(Array.from({ length: 20 }, take));
    }
    await Promise.all([...taken].map((one) => one.end({ timeout: 0 })));
    await admin`drop role hog`;
  },
};

export const connectionFaults: readonly Fault[] = [halfOpen, terminate, connectionsTaken, slow, reset];
