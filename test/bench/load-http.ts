/**
 * Load over HTTP/1.1 on kept-alive connections, one request in flight on each. The requests are made before
 * the clock runs; every answer is checked. Prints one JSON line. With "once" for the seconds, each request is
 * sent once, which warms what remembers; with "x100000" so many are sent, in turns.
 *
 *   node load-http.ts <port> <path> <authorization> <bodies file> <expected text> <connections> <seconds>
 */
import { readFileSync } from "node:fs";
import { type Connection, formRequest, openConnection } from "./connection.ts";
import { MeasuringWindow } from "./measuring-window.ts";

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
const count =
  seconds === "once" ? requests.length : seconds.startsWith("x") ? Number(seconds.slice(1)) : undefined;
const window = new MeasuringWindow();
const failures = new Map<string, number>();
let next = 0;

function runConnection(): Promise<void> {
  let sentAt = 0;
  const send = (connection: Connection) => {
    if (window.isOver || (count !== undefined && next >= count)) return connection.end();
    const request = requests[next++ % requests.length];
    sentAt = performance.now();
    if (request) connection.send(request);
  };
  return openConnection(port, {
    begin: send,
    answered(answer, connection) {
      window.answered(sentAt);
      if (!answer.startsWith("HTTP/1.1 200") || !answer.includes(expected)) {
        const what = answer.slice(0, 400);
        failures.set(what, (failures.get(what) ?? 0) + 1);
      }
      send(connection);
    },
  });
}

const startedAt = performance.now();
const running = Array.from({ length: Number(connections) }, runConnection);
if (count !== undefined) {
  await Promise.all(running);
  const perSecond = (count * 1000) / (performance.now() - startedAt);
  const [failure] = failures.keys();
  process.stdout.write(`${JSON.stringify({ perSecond, failure })}\n`);
  process.exit();
}
const measured = await window.measure(Number(seconds));
await Promise.all(running);
const [failure] = failures.keys();
process.stdout.write(`${JSON.stringify({ ...measured, failures: failures.size, failure })}\n`);
