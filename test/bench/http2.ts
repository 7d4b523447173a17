/**
 * `npm run bench:http2`: what sending costs at the connection. 100,000 POSTs of 400 bytes with a bearer token of 900, with
 * 800 in flight over eight connections, over TLS, by our client of HTTP/2 and by that of Node.js, in turns, to one light
 * server that responds at once, after 50 and after 150 ms. The server is a process of its own, and at 0 ms it is the limit.
 *
 *   BENCH_REQUESTS=100000
 */
import { once } from "node:events";
import { connect } from "node:net";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { run, startBenchServer } from "./processes.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const requests = Number(process.env["BENCH_REQUESTS"] ?? 100_000);
const port = 19_310;
const clients = ["node", "own"];

interface Measured {
  readonly seconds: number;
  readonly processorSeconds: number;
}

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

async function listens(): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  await once(socket, "connect");
  socket.destroy();
  return true;
}

print(`${number(requests)} requests, over TLS`);
print("Response after  Client  Requests/s  Processor seconds for 100,000");
for (const delayMs of [0, 50, 150]) {
  const server = await startBenchServer("./http2-server.ts", [`${port}`, `${delayMs}`], {}, listens);
  try {
    for (const client of clients) {
      const output = await run(1, "http2-load.ts", [client, `${port}`, `${requests}`]);
      const { seconds, processorSeconds }: Measured = JSON.parse(output);
      const columns = [
        `${delayMs} ms`.padEnd(14),
        client.padEnd(6),
        number(requests / seconds).padStart(10),
        ((processorSeconds / requests) * 100_000).toFixed(2).padStart(8),
      ];
      print(columns.join("  "));
    }
  } finally {
    await server.stop();
  }
}
