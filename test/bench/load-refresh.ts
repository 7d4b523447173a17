/**
 * Refreshes over HTTP/1.1 on kept-alive connections, one request in flight on each. Each connection refreshes its own
 * authorizations in turn, each time with the token that it got last. Prints one JSON line.
 *
 *   node load-refresh.ts <port> <authorization> <grants file> <connections> <authorizations of each> <seconds>
 */
import { readFileSync } from "node:fs";
import { type Connection, formRequest, openConnection } from "./connection.ts";
import { MeasuringWindow } from "./measuring-window.ts";

const [port = "", authorization = "", grantsFile = "", connections = "16", own = "20", seconds = "3"] =
  process.argv.slice(2);
const grants = readFileSync(grantsFile, "utf8").trimEnd().split("\n");
const destination = { port, path: "/api/auth/oauth2/v1/tokens", authorization };
const window = new MeasuringWindow();
const failures = new Set<string>();

/** @param first the number of the first of its grants */
function runConnection(first: number): Promise<void> {
  /** Of its authorizations, the one that was refreshed longest ago first. */
  const tokens: string[] = [];
  let granted = 0;
  let sentAt = 0;
  const send = (connection: Connection) => {
    if (window.isOver) return connection.end();
    const isGranting = granted < Number(own);
    const body = isGranting
      ? (grants[(first + granted) % grants.length] ?? "")
      : `grant_type=refresh_token&refresh_token=${tokens.shift()}`;
    if (isGranting) granted += 1;
    sentAt = performance.now();
    connection.send(formRequest(destination, body));
  };
  return openConnection(port, {
    begin: send,
    answered(answer, connection) {
      window.answered(sentAt);
      const token = /"refresh_token":"([^"]+)"/.exec(answer)?.[1];
      if (!answer.startsWith("HTTP/1.1 200") || token === undefined) failures.add(answer.slice(0, 400));
      else tokens.push(token);
      send(connection);
    },
  });
}

const running = Array.from({ length: Number(connections) }, (_, index) => runConnection(index * Number(own)));
const measured = await window.measure(Number(seconds));
await Promise.all(running);
const [failure] = failures;
process.stdout.write(`${JSON.stringify({ ...measured, failures: failures.size, failure })}\n`);
