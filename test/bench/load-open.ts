/**
 * Load in an open loop: requests are sent when they are due, whether or not earlier ones have been answered, as many
 * independent callers would; with as many in flight as may be, a request waits up to a second, and is given up then.
 * Latencies count from the moment at which a request was due. Prints one JSON line with an entry for each phase.
 *
 *   node load-open.ts <kind> <port> <authorization> <file> <rate>x<seconds>[,<rate>x<seconds> …] [in flight]
 *
 * The file has a line for each request, used in turns, as loads.ts takes them for each protocol, which is the kind; for
 * `refresh`, form bodies of grants whose refresh tokens are refreshed.
 */
import { readFileSync } from "node:fs";
import { type Answered, type Send, sendersOf } from "./open-senders.ts";
import { percentiles } from "./percentiles.ts";

const [kind = "http", port = "", authorization = "", file = "", plan = "", inFlight = "1024"] =
  process.argv.slice(2);
const lines = readFileSync(file, "utf8").trimEnd().split("\n");
const phases = plan.split(",").map((phase) => {
  const [rate = 0, seconds = 0] = phase.split("x").map(Number);
  return { rate, seconds };
});
/** Milliseconds within which an answer shows that the server has recovered. */
const promptMs = 250;
const drainMs = 10_000;

interface Tally {
  /** By performance.now(). */
  readonly end: number;
  offered: number;
  /** Results within the phase. */
  good: number;
  /** Refusals within the phase. */
  refused: number;
  failed: number;
  /** Results and refusals after the end of the phase: the server had more time for them. */
  late: number;
  /** Requests that were given up before they were sent. */
  unsent: number;
  /** Of results, the late ones too. */
  readonly latencies: number[];
  /** Milliseconds from the start of the phase to the last request that was not answered well and promptly. */
  lastTroubleMs: number;
  failure?: string;
}

interface Played {
  readonly tally: Tally;
  /** Milliseconds since the epoch. */
  readonly from: number;
  readonly to: number;
}

let outstanding = 0;

async function runPhase(send: Send, rate: number, seconds: number): Promise<Played> {
  const started = performance.now();
  const end = started + seconds * 1000;
  const counts = { offered: 0, good: 0, refused: 0, failed: 0, late: 0, unsent: 0, lastTroubleMs: 0 };
  const tally: Tally = { end, ...counts, latencies: [] };
  for (let now = started; now < end; now = performance.now()) {
    const due = Math.floor(((now - started) * rate) / 1000);
    for (; tally.offered < due; tally.offered += 1) {
      const dueAt = started + (tally.offered * 1000) / rate;
      outstanding += 1;
      send((answered) => count(tally, answered, dueAt, started));
    }
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const { timeOrigin } = performance;
  return { tally, from: timeOrigin + started, to: timeOrigin + performance.now() };
}

function count(tally: Tally, answered: Answered, dueAt: number, started: number): void {
  outstanding -= 1;
  const now = performance.now();
  const latency = now - dueAt;
  if (answered === "good") tally.latencies.push(latency);
  if (answered === "good" || answered === "refused") tally[now <= tally.end ? answered : "late"] += 1;
  else if (answered === "unsent") tally.unsent += 1;
  else {
    tally.failed += 1;
    tally.failure ??= answered.failure;
  }
  if (answered !== "good" || latency > promptMs) tally.lastTroubleMs = dueAt - started;
}

const send = await sendersOf(kind, Number(port), authorization, lines, Number(inFlight));
const results: Played[] = [];
for (const { rate, seconds } of phases) results.push(await runPhase(send, rate, seconds));
const drained = performance.now() + drainMs;
while (outstanding > 0 && performance.now() < drained)
  await new Promise((resolve) => setTimeout(resolve, 10));
const summaries = results.map(({ tally: { latencies, ...tally }, from, to }) => ({
  ...tally,
  from,
  to,
  // JSON has no NaN.
  ...(latencies.length > 0 ? percentiles(latencies) : { p50: 0, p99: 0, p999: 0 }),
}));
process.stdout.write(`${JSON.stringify({ phases: summaries, unanswered: outstanding })}\n`);
process.exit();
