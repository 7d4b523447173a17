/** The clients of embedded databases: one for each directory, which all who open it share. */
import { once } from "node:events";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { Worker } from "node:worker_threads";
import type { PGlite } from "@electric-sql/pglite";
import { lockDirectory } from "./directory-lock.ts";
import { watched } from "./only-connection.ts";

/** By default, PostgreSQL takes 128 MiB of buffers that are never released, and 16 MiB for a segment of its log. */
const initDbStartParams = ["-c", "shared_buffers=16MB", "--wal-segsize=1"];

/** V8's optimizing compiler takes 600 MiB and a second for one function of PostgreSQL, which every start keeps busy. */
const withoutOptimizing = ["--no-wasm-tier-up", "--no-wasm-dynamic-tiering"];

interface EmbeddedClient {
  readonly client: Promise<PGlite>;
  /** How many have opened it and not left it. */
  users: number;
  /** Closes the client, if all others who share it have left, too. */
  leave(): Promise<void>;
}

const clients = new Map<string, EmbeddedClient>();

/**
 * Begins to open the embedded database in this directory, for this process; it is created on a thread, in seconds.
 * @throws DirectoryInUseError
 */
export function beginEmbedded(dataDir: string): EmbeddedClient {
  const begun = clients.get(dataDir);
  if (begun) return begun;
  mkdirSync(dataDir, { recursive: true, mode: 0o700 });
  const release = lockDirectory(dataDir);
  const forget = () => {
    clients.delete(dataDir);
    release();
  };
  const client = open(dataDir);
  client.catch(forget);
  const shared: EmbeddedClient = {
    client,
    users: 0,
    async leave() {
      shared.users -= 1;
      if (shared.users === 0) await (await client).close().finally(forget);
    },
  };
  clients.set(dataDir, shared);
  return shared;
}

async function open(dataDir: string): Promise<PGlite> {
  for (const flag of withoutOptimizing) setFlagsFromString(flag);
  if (!existsSync(join(dataDir, "PG_VERSION"))) {
    const workerData = { dataDir, initDbStartParams };
    await once(new Worker(new URL("./create-embedded.js", import.meta.url), { workerData }), "exit");
  }
  const { PGlite } = await import("@electric-sql/pglite");
  return watched(await PGlite.create({ dataDir }));
}
