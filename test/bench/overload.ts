/**
 * `npm run bench:overload`: what is still answered when twice as much arrives as can be. For each kind of request, its
 * capacity in a closed loop, then in an open loop 70 % of it, twice as much, and half of it. An answer costs some 15 %
 * more in an open loop, as fewer of them share a batch. Needs PostgreSQL: this machine's, or TEST_POSTGRES_URL.
 *
 *   BENCH_SECONDS=8  BENCH_ROUNDS=3  BENCH_ONLY=introspection,grpc,issuing,refresh
 *   BENCH_IN_FLIGHT=1024     requests that are sent before the responses to others, at most; the others are kept back
 */
import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout } from "node:timers/promises";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import type { Protocol } from "./loads.ts";
import { application, introspector, type Preparation, prepare } from "./prepare.ts";
import { type BenchServer, measure, type Program, pinned, run, startBenchServer } from "./processes.ts";
import { basic, ports, startProduct, warmIntrospection } from "./product.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const seconds = Number(process.env["BENCH_SECONDS"] ?? 8);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 3);
const only = process.env["BENCH_ONLY"]?.split(",");
const inFlight = process.env["BENCH_IN_FLIGHT"] ?? "1024";
/** Authorizations, of which each is refreshed once at a time. */
const count = 4_000;
const callers = 256;
const warmUpSeconds = 3;

const print = (line: string) => process.stdout.write(`${line}\n`);
const whole = (value: number) => Math.round(value).toLocaleString("en-US");

/** A phase of the load, as load-open.ts prints it. */
interface Phase {
  readonly offered: number;
  readonly good: number;
  readonly refused: number;
  readonly failed: number;
  readonly late: number;
  readonly unsent: number;
  readonly failure?: string;
  readonly lastTroubleMs: number;
  /** Milliseconds since the epoch. */
  readonly from: number;
  readonly to: number;
  readonly p99: number;
}

interface Kind {
  readonly name: string;
  /** The closed loop. */
  readonly closed: readonly [file: Program, ...args: string[]];
  /** The open loop, without its phases. */
  readonly open: readonly [kind: string, port: string, ...args: string[]];
  /** The protocol of a server that refuses alone, if refusing can cost so much that less than the capacity is left. */
  readonly bare?: "http" | "grpc";
}

function kindsOf({ introspections, tokens, grants }: Preparation): Record<string, Kind> {
  const [reader, app] = [basic(introspector), basic(application)];
  const closed = (protocol: Protocol, port: number, who: string, file: string) =>
    ["load-closed.ts", protocol, `${port}`, who, file, `${callers}`] as const;
  return {
    introspection: {
      name: "Introspection, HTTP",
      closed: closed("http", ports.http, reader, introspections),
      open: ["http", `${ports.http}`, reader, introspections],
      bare: "http",
    },
    grpc: {
      name: "Introspection, gRPC",
      closed: closed("grpc", ports.grpc, reader, tokens),
      open: ["grpc", `${ports.grpc}`, reader, tokens],
      bare: "grpc",
    },
    issuing: {
      name: "Issuing",
      closed: closed("http", ports.http, app, grants),
      open: ["http", `${ports.http}`, app, grants],
    },
    refresh: {
      name: "Refresh",
      closed: ["load-refresh.ts", `${ports.http}`, app, grants, `${callers}`, "10"],
      open: ["refresh", `${ports.http}`, app, grants],
    },
  };
}

/** How many of something there were, and the seconds of a processor that the server needed meanwhile. */
interface Cost {
  readonly count: number;
  readonly processorSeconds: number;
}

const nothing: Cost = { count: 0, processorSeconds: 0 };
const plus = (a: Cost, b: Cost): Cost => ({
  count: a.count + b.count,
  processorSeconds: a.processorSeconds + b.processorSeconds,
});
const each = ({ count, processorSeconds }: Cost) => processorSeconds / count;

/** The processor time of a server over time. Where the system does not tell it, a server has a processor of its own. */
class ProcessorTime {
  readonly #samples: { readonly at: number; readonly seconds: number }[] = [];
  readonly #timer: NodeJS.Timeout;

  constructor(server: BenchServer) {
    const sample = () =>
      this.#samples.push({ at: Date.now(), seconds: server.processorSeconds() ?? Date.now() / 1000 });
    sample();
    this.#timer = setInterval(sample, 50);
  }

  /** @returns the seconds of a processor between two moments in milliseconds since the epoch */
  between(from: number, to: number): number {
    const within = this.#samples.filter(({ at }) => at >= from && at <= to);
    const [first, last] = [within[0], within.at(-1)];
    if (!first || !last || last.at === first.at) return (to - from) / 1000;
    return ((last.seconds - first.seconds) * (to - from)) / (last.at - first.at);
  }

  stop(): void {
    clearInterval(this.#timer);
  }
}

/** Answers in a closed loop. Throws if one of them was a refusal: so few callers never get one. */
async function closedLoop(
  time: ProcessorTime,
  [file, ...args]: Kind["closed"],
  duration: number,
): Promise<Cost> {
  const { perSecond } = await measure(1, file, [...args, `${duration}`]);
  const to = Date.now();
  return { count: perSecond * duration, processorSeconds: time.between(to - duration * 1000, to) };
}

/** An open loop, a phase for each rate. The first of them is over more quickly, and warms the connections up. */
async function openLoop(open: Kind["open"], rates: readonly number[]): Promise<readonly Phase[]> {
  const plan = rates.map((rate, index) => `${Math.round(rate)}x${index === 0 ? warmUpSeconds : seconds}`);
  const { phases }: { phases: Phase[] } = JSON.parse(
    await run(1, "load-open.ts", [...open, plan.join(","), inFlight]),
  );
  return phases;
}

/**
 * What refusals cost a server that does nothing else, under the same load: over as many connections, as often. One that
 * is read together with others of its turn, as in a closed loop, costs less.
 */
async function bareRefusals(
  protocol: "http" | "grpc",
  [kind, , ...rest]: Kind["open"],
  rate: number,
): Promise<Cost> {
  const port = protocol === "grpc" ? ports.bareGrpc : ports.bareHttp;
  const bare = await startBenchServer("bare-refusal.ts", [protocol, `${port}`], {}, async () => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    socket.destroy();
    return true;
  });
  const time = new ProcessorTime(bare);
  const [, phase] = await openLoop([kind, `${port}`, ...rest], [rate, rate]);
  time.stop();
  await bare.stop();
  if (!phase || phase.good > 0) throw new Error("the bare server did not refuse all");
  return { count: phase.refused, processorSeconds: time.between(phase.from, phase.to) };
}

/** Milliseconds after an overload in which lower priorities may still be refused. */
const settleMs = 5_000;

interface Round {
  /** In the closed loop. */
  readonly answers: Cost;
  /** Of the bare server. */
  readonly refusals: Cost;
  /** At 70 %, 200 % and then half of the capacity. */
  readonly below: Phase;
  readonly over: Phase;
  readonly after: Phase;
  /** Seconds of a processor in `over`. */
  readonly used: number;
}

/** The capacity, what a refusal costs, and the open loop, each right after the other. */
async function playRound(time: ProcessorTime, { closed, open, bare }: Kind): Promise<Round> {
  await setTimeout(settleMs);
  await closedLoop(time, closed, warmUpSeconds);
  const answers = await closedLoop(time, closed, seconds);
  const capacity = answers.count / seconds;
  const refusals = bare ? await bareRefusals(bare, open, capacity * 2) : nothing;
  const [, below, over, after] = await openLoop(
    open,
    [0.5, 0.7, 2, 0.5].map((share) => share * capacity),
  );
  if (!below || !over || !after) throw new Error("a phase is missing");
  return { answers, refusals, below, over, after, used: time.between(over.from, over.to) };
}

async function overload(time: ProcessorTime, kind: Kind): Promise<boolean> {
  const played: Round[] = [];
  for (let round = 0; round < rounds; round += 1) played.push(await playRound(time, kind));
  const sum = (of: (round: Round) => number) => played.reduce((total, round) => total + of(round), 0);
  const greatest = (of: (round: Round) => number) => Math.max(...played.map(of));
  // Sums over all rounds: what is left is a small difference of large figures, which vary from round to round.
  const answer = each(played.map(({ answers }) => answers).reduce(plus, nothing));
  const refusal = kind.bare ? each(played.map(({ refusals }) => refusals).reduce(plus, nothing)) : 0;
  const overSeconds = sum(({ over }) => (over.to - over.from) / 1000);
  const offered = sum(({ over }) => over.offered) / overSeconds;
  const refused = sum(({ over }) => over.refused) / overSeconds;
  // Of a processor, as much as the server had in the closed loop, if it made use of less.
  const processor = Math.max(
    sum(({ used }) => used) / overSeconds,
    sum(({ answers }) => answers.processorSeconds) / seconds / rounds,
  );
  const left = Math.min(offered, Math.max(0, (processor - offered * refusal) / (answer - refusal)));
  const capacity = sum(({ answers }) => answers.count) / seconds / rounds;
  const goodput = sum(({ over }) => over.good) / overSeconds;
  const recoveryMs = greatest(({ after }) => after.lastTroubleMs);
  const below = played.map((round) => round.below);
  const unserved = below.map(({ offered, refused, failed, unsent }) => (refused + failed + unsent) / offered);
  const met = goodput >= 0.8 * left && Math.max(...unserved) === 0 && recoveryMs <= 5_000;
  const micros = (cost: number) => (cost * 1e6).toFixed(1);
  const columns = [
    whole(capacity),
    micros(answer),
    kind.bare ? micros(refusal) : "",
    whole(offered),
    whole(left),
    whole(goodput),
    `${((goodput / left) * 100).toFixed(0)} %`,
    `${((goodput / capacity) * 100).toFixed(0)} %`,
    whole(refused),
    whole(sum(({ over }) => over.failed) / overSeconds),
    whole(sum(({ over }) => over.late) / overSeconds),
    whole(sum(({ over }) => over.unsent) / overSeconds),
    `${whole(greatest(({ over }) => over.p99))} ms`,
    `${(recoveryMs / 1000).toFixed(1)} s`,
    `${(Math.max(...unserved) * 100).toFixed(1)} %, ${whole(Math.max(...below.map(({ p99 }) => p99)))} ms`,
  ];
  print(
    `${kind.name.padEnd(20)}${columns.map((text) => text.padStart(13)).join("")}  ${met ? "met" : "NOT met"}`,
  );
  for (const { failure } of played.flatMap((round) => [round.below, round.over, round.after]))
    if (failure) print(`  an answer that failed: ${failure}`);
  return met;
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`The benchmark needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const preparation = await prepare(count, () => undefined);
const product = await startProduct(preparation);
const time = new ProcessorTime(product);
try {
  await warmIntrospection(preparation);
  print(
    `Per second, over ${rounds} rounds of ${seconds} s${pinned ? ", the server on core 0, load on core 1" : ""}. Capacity: a closed loop of ${callers} callers, none of whom was refused.\n` +
      "Costs in microseconds of processor time: of an answer there, and of a refusal by a bare server under twice as much.\n" +
      "Left: answers for which the server would have processor time, had it refused all other requests (issuing, refresh: all of its time).\n" +
      `Goodput: results before the phase ended. Late: results and refusals after that. Unsent: requests that were given up after a second, as ${inFlight} others were in flight.\n` +
      "Recovery: the last refused, failed or slow (250 ms) answer after the load fell to half of the capacity. At 70 %: the greatest share of refused, failed and unsent requests in a round, which has to be none, and p99.\n",
  );
  const heads = ["capacity", "answer", "refusal", "offered", "left", "goodput", "of left", "of capacity"];
  const more = ["refused", "failed", "late", "unsent", "p99", "recovery", "at 70 %"];
  print(`${"".padEnd(20)}${[...heads, ...more].map((head) => head.padStart(13)).join("")}`);
  let allMet = true;
  for (const [key, kind] of Object.entries(kindsOf(preparation)))
    if (only?.includes(key) ?? true) allMet = (await overload(time, kind)) && allMet;
  process.exitCode = allMet ? 0 : 1;
} finally {
  time.stop();
  await product.stop();
  await preparation.database.drop();
  await stopPostgresql();
  rmSync(preparation.directory, { recursive: true, force: true });
}
