/**
 * Load over HTTP/1.1 on kept-alive connections, one request in flight on each. The requests are made before
 * the clock runs; every answer is checked. Prints one JSON line. With "once" for the seconds, each request is
 * sent once, which warms what remembers.
 *
 *   node load-http.ts <port> <path> <authorization> <bodies file> <expected text> <connections> <seconds>
 */
import { readFileSync } from "node:fs";
import { connect } from "node:net";
import { percentiles } from "./percentiles.ts";

const [port, path, authorization, bodiesFile, expected = "", connections = "64", seconds = "5"] =
  process.argv.slice(2);
const bodies = readFileSync(bodiesFile ?? "", "utf8")
  .trimEnd()
  .split("\n");
const requests = bodies.map((body) =>
  Buffer.from(
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: ${authorization}\r\n` +
      `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  ),
);
const once = seconds === "once";
const warmUpMs = 1500;
const latencies: number[] = [];
const failures = new Map<string, number>();
let next = 0;
let counting = false;
let stopping = false;

function runConnection(): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const socket = connect(Number(port), "127.0.0.1");
  socket.setNoDelay(true);
  let pending = "";
  let sentAt = 0;
  const send = () => {
    if (stopping || (once && next >= requests.length)) {
      socket.end();
      resolve();
      return;
    }
    const request = requests[next++ % requests.length];
    sentAt = performance.now();
    if (request) socket.write(request);
  };
  socket.setEncoding("latin1");
  socket.on("connect", send);
  socket.on("error", reject);
  socket.on("data", (text: string) => {
    pending += text;
    const head = pending.indexOf("\r\n\r\n");
    if (head === -1) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(pending.slice(0, head + 2))?.[1] ?? 0);
    if (pending.length < head + 4 + length) return;
    if (counting) latencies.push(performance.now() - sentAt);
    if (!pending.startsWith("HTTP/1.1 200") || !pending.includes(expected, head)) {
      const what = pending.slice(0, 400);
      failures.set(what, (failures.get(what) ?? 0) + 1);
    }
    pending = "";
    send();
  });
  return promise;
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
