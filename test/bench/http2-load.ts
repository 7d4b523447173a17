/**
 * Sends short POSTs with the pool that the push senders use, and prints how long that took: `seconds`, and
 * `processorSeconds` of this process.
 *
 *   node http2-load.ts <own|node> <port> <requests>
 */

import { Http2Pool } from "../../src/platform/http2/pool.ts";
import { http2Clients } from "../support/http2-clients.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";

const [client, port, requests] = process.argv.slice(2);
const inFlight = 800;
const pool = new Http2Pool({
  connect: client === "node" ? http2Clients.node : http2Clients.own,
  origin: `https://localhost:${port}`,
  ca: localhostCertificate.cert,
  maxSessions: 8,
  maxStreams: 100,
});
const head = {
  path: "/v1/projects/my-project/messages:send",
  shared: [
    ...[":method", "POST", ":scheme", "https", ":authority", `localhost:${port}`],
    ...["content-type", "application/json", "authorization", `Bearer ${"t".repeat(900)}`],
  ],
};

async function send(count: number): Promise<void> {
  let left = count;
  const worker = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      const body = `{"message":{"token":"${String(left).padStart(378, "t")}"}}`;
      const response = await pool.request(head, body);
      if (!response.responded) throw new Error(response.reason);
      if (response.status !== 200) throw new Error(String(response.status));
    }
  };
  await Promise.all(Array.from({ length: inFlight }, worker));
}

// Opens the connections, and lets the code be optimised.
await send(10_000);
const started = performance.now();
const before = process.cpuUsage();
await send(Number(requests));
const { user, system } = process.cpuUsage(before);
const seconds = (performance.now() - started) / 1000;
process.stdout.write(JSON.stringify({ seconds, processorSeconds: (user + system) / 1e6 }));
await pool.close();
