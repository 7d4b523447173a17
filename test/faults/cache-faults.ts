/** What happens to Redis, while somebody guesses passwords: the limit holds, one further window for each loss apart. */
import { setTimeout } from "node:timers/promises";
import { guessingRules } from "../../src/auth/limits/guessing.ts";
import { findRedis, type Redis, startRedis } from "../support/redis.ts";
import { newIdentity } from "./caller-faults.ts";
import type { Fault, Scene } from "./fault.ts";
import { grant, HttpClient } from "./http-client.ts";
import type { WorldOptions } from "./world.ts";

const guessEveryMs = 100;
/** Milliseconds for which Redis is troubled. */
const troubleMs = 5_000;

const withCache = (): WorldOptions => ({ cache: startRedis });

/** Somebody who guesses the password of one identity, at all servers, and never stops. */
interface Guesser {
  /** Guesses on until each server refuses. @returns how many guesses were judged */
  stop(): Promise<number>;
}

/** Resolves once the limit is reached. */
async function startGuessing(scene: Scene): Promise<Guesser> {
  const {
    world: { members, credentials },
    ledger,
  } = scene;
  const http = new HttpClient();
  const username = await newIdentity(scene, http);
  let judged = 0;
  /** @returns whether it was refused, and so not judged */
  async function guess(origin: string): Promise<boolean> {
    const form = { grant_type: "password", username, password: "correct horse" };
    const { status } = await http.send(origin, grant(credentials.other, form));
    if (status === 400) judged += 1;
    else if (![0, 429, 503].includes(status)) ledger.wrong.push(`a wrong password: ${status}`);
    return status === 429;
  }
  async function guessOn(origin: string, isEnough: (isRefused: boolean) => boolean): Promise<void> {
    while (!isEnough(await guess(origin))) await setTimeout(guessEveryMs);
  }
  const untilRefused = () =>
    Promise.all(members.map(({ process }) => guessOn(process.origin, (isRefused) => isRefused)));
  await untilRefused();
  let isOver = false;
  const guessing = Promise.all(members.map(({ process }) => guessOn(process.origin, () => isOver)));
  return {
    async stop() {
      isOver = true;
      await guessing;
      await untilRefused();
      http.close();
      return judged;
    },
  };
}

/** Whether every server counts in the cache. */
export async function isUsed({ world: { members } }: Scene): Promise<boolean> {
  const texts = await Promise.all(
    members.map(async ({ process }) => (await fetch(`${process.management}/metrics`)).text()),
  );
  return texts.every((text) => /^gatepost_cache_usable\{service="auth"\} 1$/m.test(text));
}

/**
 * @param windows how many windows of guesses it may cost in all: that in Redis; one more in the database, if Redis is
 *   away; and another in Redis, if that forgets
 */
function cacheFault(
  name: string,
  what: string,
  windows: number,
  trouble: (cache: Redis) => Promise<unknown>,
): Fault {
  let guesser: Guesser | undefined;
  return {
    name,
    what,
    short: false,
    rounds: 10,
    // Those who are signed in and those who guess are served on, without it.
    concerns: "others",
    world: withCache,
    impossible: () =>
      findRedis() === undefined
        ? "redis-server is not installed (Debian: apt-get install redis-server)"
        : undefined,
    async play(scene) {
      guesser = await startGuessing(scene);
      await trouble(scene.world.cache);
    },
    recovery: (scene) => () => isUsed(scene),
    async settle({ ledger }) {
      const judged = await guesser?.stop();
      const most = windows * guessingRules.password.failures;
      if (judged === undefined || judged > most)
        ledger.wrong.push(`${judged} guesses at one identity were judged: more than ${most}`);
    },
  };
}

/** Writes until it is refused. */
async function fill({ command }: Redis): Promise<void> {
  for (;;) {
    try {
      await command("APPEND", "ballast", "x".repeat(100_000));
    } catch (error) {
      if (error instanceof Error && error.message.startsWith("OOM")) return;
      throw error;
    }
  }
}

export const cacheFaults: readonly Fault[] = [
  cacheFault("redis-kill", "Redis is killed, and comes back empty after five seconds", 3, async (cache) => {
    await cache.kill();
    await setTimeout(troubleMs);
    await cache.restart();
  }),
  cacheFault("redis-freeze", "the process of Redis stands still for five seconds", 2, async (cache) => {
    cache.freeze();
    await setTimeout(troubleMs);
    cache.thaw();
  }),
  cacheFault("redis-flush", "Redis forgets everything (FLUSHALL)", 2, (cache) => cache.command("FLUSHALL")),
  cacheFault(
    "redis-read-only",
    "Redis is made a replica, and then wants replicas that it does not have",
    2,
    async (cache) => {
      await cache.command("REPLICAOF", "127.0.0.1", "1");
      await setTimeout(troubleMs);
      await cache.command("REPLICAOF", "NO", "ONE");
      await cache.command("CONFIG", "SET", "min-replicas-to-write", "1");
      await setTimeout(troubleMs);
      await cache.command("CONFIG", "SET", "min-replicas-to-write", "0");
    },
  ),
  cacheFault("redis-full", "Redis has no memory left, and forgets nothing", 2, async (cache) => {
    await cache.command("CONFIG", "SET", "maxmemory", "1mb");
    await fill(cache);
    await setTimeout(troubleMs);
    await cache.command("CONFIG", "SET", "maxmemory", "0");
    await cache.command("DEL", "ballast");
  }),
];
