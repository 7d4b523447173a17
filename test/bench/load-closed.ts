/**
 * Load in a closed loop: as many requests are in flight at any time. Prints one JSON line. With "once" for the seconds,
 * each request is sent once, which warms what remembers; with "x100000" so many are sent, in turns.
 *
 *   node load-closed.ts <protocol, of loads.ts> <port> <authorization> <file> <in flight> <seconds>
 */
import { readFileSync } from "node:fs";
import { loadOf } from "./loads.ts";
import { MeasuringWindow } from "./measuring-window.ts";
import { lost, type Slot } from "./slots.ts";

const [protocol = "", port, authorization = "", file = "", inFlight = "64", seconds = "5"] =
  process.argv.slice(2);
const lines = readFileSync(file, "utf8").trimEnd().split("\n");
const { requests, open, isWhole } = loadOf(protocol, Number(port), authorization, lines);
const count =
  seconds === "once" ? requests.length : seconds.startsWith("x") ? Number(seconds.slice(1)) : undefined;
const window = new MeasuringWindow();
let failure: string | undefined;
let next = 0;

function runLane(slot: Slot): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const send = () => {
    const request = requests[next++ % requests.length];
    if (window.isOver || !request || (count !== undefined && next > count)) return resolve();
    const sentAt = performance.now();
    slot(request, (status, body) => {
      window.answered(sentAt);
      if (status !== 200 || !isWhole(body)) failure ??= `${status} ${body.slice(0, 400)}`;
      if (status === lost) resolve();
      else send();
    });
  };
  send();
  return promise;
}

const slots = await open(Number(inFlight));
const startedAt = performance.now();
const lanes = Promise.all(slots.map(runLane));
const measured = count === undefined ? await window.measure(Number(seconds)) : undefined;
await lanes;
const perSecond = ((count ?? 0) * 1000) / (performance.now() - startedAt);
process.stdout.write(`${JSON.stringify({ perSecond, ...measured, failure })}\n`, () => process.exit());
