/**
 * A process that looks tokens up, so many at a time, each as soon as one before it is answered. Prints one JSON line.
 *
 *   node cache-looks.ts <task as JSON>
 */
import { readFileSync } from "node:fs";
import { createClient } from "@redis/client";
import { authMigrations } from "../../src/auth/service.ts";
import { createAuthorizationRepository } from "../../src/auth/tokens/introspect.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { type BatchedLookup, batched } from "../../src/platform/database/sql/batched-lookup.ts";
import { postgresSettings, type TestDatabase } from "../support/backends.ts";

export interface Task {
  /** Where: one of the two. */
  readonly database?: Omit<TestDatabase, "drop">;
  /** A port on this machine. */
  readonly redis?: number;
  /** Has one jti a line. All are live. */
  readonly file: string;
  readonly inFlight: number;
  readonly looks: number;
  /** Looks before it measures. */
  readonly warmUp: number;
}

export interface Looked {
  readonly perSecond: number;
  /** Of this process. */
  readonly processorSeconds: number;
}

const { database, redis, file, inFlight, looks, warmUp }: Task = JSON.parse(process.argv[2] ?? "");
const jtis = readFileSync(file, "utf8").split("\n");

async function open(): Promise<BatchedLookup<string, true>> {
  if (database) {
    const settings = { ...postgresSettings(database), poolSize: 10 };
    const opened = await openDatabase(settings, authMigrations);
    return createAuthorizationRepository(opened.reads).isActive;
  }
  const client = createClient({ socket: { host: "127.0.0.1", port: redis ?? 0 }, RESP: 2 });
  await client.connect();
  return batched({
    async load(keys: readonly string[]) {
      const values = await client.mGet([...keys]);
      const live = new Map<string, true>();
      for (const [index, key] of keys.entries()) if (values[index] === "1") live.set(key, true);
      return live;
    },
  });
}

const isActive = await open();
// Processes do not ask for the same at the same time.
let next = process.pid;
async function look(count: number): Promise<void> {
  let left = count;
  async function one(): Promise<void> {
    while (left > 0) {
      left -= 1;
      next += 1;
      if (!(await isActive(jtis[next % jtis.length] ?? ""))) throw new Error("a live token is not");
    }
  }
  await Promise.all(Array.from({ length: inFlight }, one));
}
await look(warmUp);
const before = process.cpuUsage();
const startedAt = performance.now();
await look(looks);
const seconds = (performance.now() - startedAt) / 1_000;
const { user, system } = process.cpuUsage(before);
const looked: Looked = { perSecond: looks / seconds, processorSeconds: (user + system) / 1e6 };
process.stdout.write(`${JSON.stringify(looked)}\n`, () => process.exit());
