/**
 * Refreshes over HTTP/1.1 on kept-alive connections, one request in flight on each. Each connection refreshes its own
 * authorizations in turn, each time with the token that it got last. Prints one JSON line.
 *
 *   node load-refresh.ts <port> <authorization> <forms file> <connections> <authorizations of each> <seconds> [<proof>]
 *
 * The forms make authorizations. With a proof of the key of a client without a secret, they refresh bound ones, and their
 * file has the next ones in the end, for the next run.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { formRequest, refreshOf } from "./loads.ts";
import { MeasuringWindow } from "./measuring-window.ts";
import { publicApplication } from "./prepare.ts";
import { tokensPath } from "./product.ts";
import { lost, openConnections, type Slot } from "./slots.ts";

const [port, authorization = "", formsFile = "", connections = "16", own = "20", seconds = "3", proof] =
  process.argv.slice(2);
const forms = readFileSync(formsFile, "utf8").trimEnd().split("\n");
const target = { port: Number(port), path: tokensPath, authorization, proof };
const ofClient = proof === undefined ? "" : `&client_id=${publicApplication}`;
const window = new MeasuringWindow();
let failure: string | undefined;

/** @param first the number of the first of its forms @returns the next ones */
function runConnection(slot: Slot, first: number): Promise<string[]> {
  const { promise, resolve } = Promise.withResolvers<string[]>();
  /** Of its authorizations, the one that was refreshed longest ago first. */
  const refreshes: string[] = [];
  let begun = 0;
  const send = () => {
    const isBeginning = begun < Number(own);
    if (window.isOver && !isBeginning) return resolve(refreshes);
    const form = isBeginning ? forms[(first + begun++) % forms.length] : refreshes.shift();
    const sentAt = performance.now();
    slot(formRequest(target, form ?? ""), (status, body) => {
      window.answered(sentAt);
      const refresh = refreshOf(body);
      if (status !== 200 || refresh === undefined) failure ??= `${status} ${body.slice(0, 400)}`;
      else refreshes.push(refresh + ofClient);
      if (status === lost) resolve([]);
      else send();
    });
  };
  send();
  return promise;
}

const slots = await openConnections(target.port, Number(connections));
const running = Promise.all(slots.map((slot, index) => runConnection(slot, index * Number(own))));
const measured = await window.measure(Number(seconds));
const next = await running;
if (proof !== undefined) writeFileSync(formsFile, `${next.flat().join("\n")}\n`);
process.stdout.write(`${JSON.stringify({ ...measured, failure })}\n`, () => process.exit());
