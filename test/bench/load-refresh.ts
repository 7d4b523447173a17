/**
 * Refreshes over HTTP/1.1 on kept-alive connections, one request in flight on each. Each connection refreshes its own
 * authorizations in turn, each time with the token that it got last. Prints one JSON line.
 *
 *   node load-refresh.ts <port> <authorization> <grants file> <connections> <authorizations of each> <seconds>
 */
import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { percentiles } from "./percentiles.ts";

const [port, authorization = "", grantsFile = "", connections = "16", own = "20", seconds = "3"] =
  process.argv.slice(2);
const grants = readFileSync(grantsFile, "utf8").trimEnd().split("\n");
const agent = new Agent({ keepAlive: true, maxSockets: Number(connections) });
const warmUpMs = 1500;
const latencies: number[] = [];
const failures = new Set<string>();
let counting = false;
let stopping = false;

/** @returns the refresh token of the answer; undefined if it was refused */
function post(body: string): Promise<string | undefined> {
  const { promise, resolve, reject } = Promise.withResolvers<string | undefined>();
  const headers = {
    authorization,
    "content-type": "application/x-www-form-urlencoded",
    "content-length": body.length,
  };
  const options = {
    agent,
    port,
    host: "127.0.0.1",
    method: "POST",
    path: "/api/auth/oauth2/v1/tokens",
    headers,
  };
  const sent = request(options, (response) => {
    let text = "";
    response.setEncoding("utf8").on("data", (part: string) => {
      text += part;
    });
    response.on("end", () => {
      const token = /"refresh_token":"([^"]+)"/.exec(text)?.[1];
      if (response.statusCode !== 200 || token === undefined) failures.add(`${response.statusCode} ${text}`);
      resolve(token);
    });
  });
  sent.on("error", reject);
  sent.end(body);
  return promise;
}

/** The tokens of a connection's authorizations. */
async function obtain(first: number): Promise<string[]> {
  const tokens: string[] = [];
  for (let n = 0; n < Number(own); n += 1) {
    const token = await post(grants[(first + n) % grants.length] ?? "");
    if (token !== undefined) tokens.push(token);
  }
  return tokens;
}

async function runConnection(tokens: string[]): Promise<void> {
  for (let turn = 0; !stopping; turn += 1) {
    const index = turn % tokens.length;
    const sentAt = performance.now();
    const next = await post(`grant_type=refresh_token&refresh_token=${tokens[index]}`);
    if (counting) latencies.push(performance.now() - sentAt);
    if (next === undefined) return;
    tokens[index] = next;
  }
}

const obtained = await Promise.all(
  Array.from({ length: Number(connections) }, (_, index) => obtain(index * Number(own))),
);
const running = obtained.map(runConnection);
await new Promise((resolve) => setTimeout(resolve, warmUpMs));
counting = true;
const started = performance.now();
await new Promise((resolve) => setTimeout(resolve, Number(seconds) * 1000));
counting = false;
const perSecond = (latencies.length * 1000) / (performance.now() - started);
stopping = true;
await Promise.all(running);
const [failure] = failures;
process.stdout.write(
  `${JSON.stringify({ perSecond, ...percentiles(latencies), failures: failures.size, failure })}\n`,
);
