/**
 * Refreshes over HTTP/1.1 on kept-alive connections, one request in flight on each. Each connection refreshes its own
 * authorizations in turn, each time with the token that it got last. Prints one JSON line.
 *
 *   node load-refresh.ts <port> <authorization> <grants file> <connections> <authorizations of each> <seconds>
 */
import { readFileSync } from "node:fs";
import { formRequest, refreshOf } from "./loads.ts";
import { MeasuringWindow } from "./measuring-window.ts";
import { tokensPath } from "./product.ts";
import { lost, openConnections, type Slot } from "./slots.ts";

const [port, authorization = "", grantsFile = "", connections = "16", own = "20", seconds = "3"] =
  process.argv.slice(2);
const grants = readFileSync(grantsFile, "utf8").trimEnd().split("\n");
const target = { port: Number(port), path: tokensPath, authorization };
const window = new MeasuringWindow();
let failure: string | undefined;

/** @param first the number of the first of its grants */
function runConnection(slot: Slot, first: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  /** Of its authorizations, the one that was refreshed longest ago first. */
  const refreshes: string[] = [];
  let granted = 0;
  const send = () => {
    if (window.isOver) return resolve();
    const isGranting = granted < Number(own);
    const form = isGranting ? grants[(first + granted++) % grants.length] : refreshes.shift();
    const sentAt = performance.now();
    slot(formRequest(target, form ?? ""), (status, body) => {
      window.answered(sentAt);
      const refresh = refreshOf(body);
      if (status !== 200 || refresh === undefined) failure ??= `${status} ${body.slice(0, 400)}`;
      else refreshes.push(refresh);
      if (status === lost) resolve();
      else send();
    });
  };
  send();
  return promise;
}

const slots = await openConnections(target.port, Number(connections));
const running = Promise.all(slots.map((slot, index) => runConnection(slot, index * Number(own))));
const measured = await window.measure(Number(seconds));
await running;
process.stdout.write(`${JSON.stringify({ ...measured, failure })}\n`, () => process.exit());
