/**
 * Load over HTTP/1.1 on kept-alive connections, one request in flight on each. The requests are made before
 * the clock runs; every answer is checked. Prints one JSON line. With "once" for the seconds, each request is
 * sent once, which warms what remembers.
 *
 *   node load-http.ts <port> <path> <authorization> <bodies file> <expected text> <connections> <seconds>
 */
import { readFileSync } from "node:fs";
import { type Connection, formRequest, openConnection } from "./connection.ts";
import { percentiles } from "./percentiles.ts";

const [
  port = "",
  path = "",
  authorization = "",
  bodiesFile,
  expected = "",
  connections = "64",
  seconds = "5",
] = process.argv.slice(2);
const bodies = readFileSync(bodiesFile ?? "", "utf8")
  .trimEnd()
  .split("\n");
const requests = bodies.map((body) => formRequest({ port, path, authorization }, body));
const once = seconds === "once";
const warmUpMs = 1500;
const latencies: number[] = [];
const failures = new Map<string, number>();
let next = 0;
let counting = false;
let stopping = false;

function runConnection(): Promise<void> {
  let sentAt = 0;
  const send = (connection: Connection) => {
    if (stopping || (once && next >= requests.length)) return connection.end();
    const request = requests[next++ % requests.length];
    sentAt = performance.now();
    if (request) connection.send(request);
  };
  return openConnection(port, {
    begin: send,
    answered(answer, connection) {
      if (counting) latencies.push(performance.now() - sentAt);
      if (!answer.startsWith("HTTP/1.1 200") || !answer.includes(expected)) {
        const what = answer.slice(0, 400);
        failures.set(what, (failures.get(what) ?? 0) + 1);
      }
      send(connection);
    },
  });
}

const running = Array.from({ length: Number(connections) }, runConnection);
if (once) {
  await Promise.all(running);
  const [failure] = failures.keys();
  process.stdout.write(`${JSON.stringify({ perSecond: 0, failure })}\n`);
  process.exit();
}
await new Promise((resolve) => setTimeout(resolve, warmUpMs));
counting = true;
const started = performance.now();
await new Promise((resolve) => setTimeout(resolve, Number(seconds) * 1000));
counting = false;
const perSecond = (latencies.length * 1000) / (performance.now() - started);
stopping = true;
await Promise.all(running);
const [failure] = failures.keys();
process.stdout.write(
  `${JSON.stringify({ perSecond, ...percentiles(latencies), failures: failures.size, failure })}\n`,
);
