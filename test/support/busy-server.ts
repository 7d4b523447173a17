/** A host that is slow to connect to, and look-ups of its name. */

import dns from "node:dns";
import { once } from "node:events";
import { syncBuiltinESMExports } from "node:module";
import { connect, type LookupFunction, type Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { onTestFinished } from "vitest";

/**
 * A server that accepts nothing for a while, and whose queue of connections is full: the kernel drops a SYN, as a
 * network does, and the next one comes after a second. It responds to every request with `{"verified":true}`.
 */
export async function startBusyServer(
  cleanup: AsyncDisposableStack,
  module: "http" | "http2",
  busyMs: number,
): Promise<number> {
  const worker = new Worker(
    `const { parentPort, workerData: { module, busyMs } } = require("node:worker_threads");
     const server = require("node:" + module).createServer((request, response) => response.end('{"verified":true}'));
     server.listen({ port: 0, host: "127.0.0.1", backlog: 1 }, () => {
       parentPort.postMessage(server.address().port);
       Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, busyMs);
     });`,
    { eval: true, workerData: { module, busyMs } },
  );
  cleanup.defer(async () => void (await worker.terminate()));
  const [port] = await once(worker, "message");
  const queue: Socket[] = [connect({ port, host: "127.0.0.1" }), connect({ port, host: "127.0.0.1" })];
  for (const socket of queue) cleanup.defer(() => void socket.destroy());
  await Promise.all(queue.map((socket) => once(socket, "connect")));
  return port;
}

/** A look-up that finds these addresses, as the system's would. */
export const finding =
  (...addresses: readonly string[]): LookupFunction =>
  (_, { family = 0 }, done) => {
    const all = addresses.map((address) => ({ address, family: address.includes(":") ? 6 : 4 }));
    const found = all.filter((one) => family === 0 || family === one.family);
    setImmediate(() =>
      done(found.length > 0 ? null : Object.assign(new Error(), { code: "ENOTFOUND" }), found),
    );
  };

/** Makes it the system's look-up until the test ends. */
export function replaceLookup(lookup: LookupFunction): void {
  const use = (one: object) => {
    Object.assign(dns, { lookup: one });
    syncBuiltinESMExports();
  };
  const { lookup: original } = dns;
  onTestFinished(() => use(original));
  use(lookup);
}
