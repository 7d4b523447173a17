/**
 * `npm run bench:overload`: what is still answered when twice as much arrives as can be. For each kind of request, its
 * capacity in a closed loop, then in an open loop 80 % of it, twice as much, and half of it. Needs PostgreSQL: this
 * machine's, or TEST_POSTGRES_URL.
 *
 *   BENCH_SECONDS=8  BENCH_ONLY=introspection,grpc,issuing,refresh
 */
import { once } from "node:events";
import { rmSync } from "node:fs";
import { connect } from "node:net";
import { setTimeout } from "node:timers/promises";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { application, introspector, type Preparation, prepare } from "./prepare.ts";
import { type BenchServer, measure, pinned, run, startBenchServer } from "./processes.ts";
import { basic, introspectPath, ports, startProduct, tokensPath, warmIntrospection } from "./product.ts";

const seconds = Number(process.env["BENCH_SECONDS"] ?? 8);
const only = process.env["BENCH_ONLY"]?.split(",");
/** Authorizations, of which each is refreshed once at a time. */
const count = 4_000;
const callers = 256;
const warmUpSeconds = 5;

const print = (line: string) => process.stdout.write(`${line}\n`);
const whole = (value: number) => Math.round(value).toLocaleString("en-US");

/** A phase of the load, as load-open.ts prints it. */
interface Phase {
  readonly offered: number;
  readonly good: number;
  readonly refused: number;
  readonly failed: number;
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
  readonly closed: readonly [file: string, ...args: string[]];
  /** The open loop, without its phases. */
  readonly open: readonly string[];
  /** What refuses alone, if it can cost so much that less than the capacity is left. */
  readonly bare?: { readonly protocol: string; readonly closed: Kind["closed"] };
}

function kindsOf({ introspections, tokens, grants }: Preparation): Record<string, Kind> {
  const [reader, app] = [basic(introspector), basic(application)];
  const http = (path: string, who: string, file: string, expected: string, port = ports.http) =>
    ["load-http.ts", `${port}`, path, who, file, expected, `${callers}`] as const;
  const grpc = (port: number) => ["load-grpc.ts", `${port}`, reader, tokens, `${callers}`] as const;
  const issue = http(tokensPath, app, grants, '"access_token"');
  return {
    introspection: {
      name: "Introspection, HTTP",
      closed: http(introspectPath, reader, introspections, '"active":true'),
      open: ["http", `${ports.http}`, reader, introspections],
      bare: { protocol: "http", closed: http("/", reader, introspections, "", ports.bareHttp) },
    },
    grpc: {
      name: "Introspection, gRPC",
      closed: grpc(ports.grpc),
      open: ["grpc", `${ports.grpc}`, reader, tokens],
      bare: { protocol: "grpc", closed: grpc(ports.bareGrpc) },
    },
    issuing: { name: "Issuing", closed: issue, open: ["http", `${ports.http}`, app, grants] },
    refresh: {
      name: "Refresh",
      closed: ["load-refresh.ts", `${ports.http}`, app, grants, `${callers}`, "10"],
      open: ["refresh", `${ports.http}`, app, grants],
    },
  };
}

/** A rate, and the share of a processor that the server had meanwhile: other work of the machine takes some of it. */
interface Rate {
  readonly perSecond: number;
  readonly processor: number;
}

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

  /** @returns of one processor, between two moments in milliseconds since the epoch */
  share(from: number, to: number): number {
    const within = this.#samples.filter(({ at }) => at >= from && at <= to);
    const [first, last] = [within[0], within.at(-1)];
    if (!first || !last || last.at === first.at) return 1;
    return ((last.seconds - first.seconds) * 1000) / (last.at - first.at);
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
  isRefusing = false,
): Promise<Rate> {
  const all = [...args, `${duration}`];
  // A server that refuses all gives no answer that the load takes for a good one.
  const { perSecond }: { perSecond: number } = isRefusing
    ? JSON.parse(await run(1, file, all))
    : await measure(1, file, all);
  return { perSecond, processor: time.share(Date.now() - duration * 1000, Date.now()) };
}

/** Seconds of a processor that a refusal costs a server that does nothing else. */
async function refusalSeconds({ protocol, closed }: NonNullable<Kind["bare"]>): Promise<number> {
  const port = protocol === "grpc" ? ports.bareGrpc : ports.bareHttp;
  const bare = await startBenchServer("bare-refusal.ts", [protocol, `${port}`], {}, async () => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    socket.destroy();
    return true;
  });
  const time = new ProcessorTime(bare);
  const { perSecond, processor } = await closedLoop(time, closed, seconds, true);
  time.stop();
  await bare.stop();
  return processor / perSecond;
}

/** Milliseconds after an overload in which lower priorities may still be refused. */
const settleMs = 5_000;

async function overload(time: ProcessorTime, { name, closed, open, bare }: Kind): Promise<boolean> {
  await setTimeout(settleMs);
  await closedLoop(time, closed, warmUpSeconds);
  const capacity = await closedLoop(time, closed, seconds);
  const answer = capacity.processor / capacity.perSecond;
  const refusal = bare ? await refusalSeconds(bare) : 0;
  const plan = [0.8, 2, 0.5].map((share) => `${Math.round(capacity.perSecond * share)}x${seconds}`);
  const { phases }: { phases: Phase[] } = JSON.parse(await run(1, "load-open.ts", [...open, plan.join(",")]));
  const [below, over, after] = phases;
  if (!below || !over || !after) throw new Error("a phase is missing");
  const perSecond = (count: number) => (count * 1000) / (over.to - over.from);
  const offered = perSecond(over.offered);
  const processor = time.share(over.from, over.to);
  const left = Math.min(offered, Math.max(0, (processor - offered * refusal) / (answer - refusal)));
  const goodput = perSecond(over.good);
  const met = goodput >= 0.8 * left && below.refused === 0 && after.lastTroubleMs <= 5_000;
  const micros = (cost: number) => (cost * 1e6).toFixed(0);
  const columns = [
    whole(capacity.perSecond),
    micros(answer),
    bare ? micros(refusal) : "",
    whole(offered),
    whole(left),
    whole(goodput),
    `${((goodput / left) * 100).toFixed(0)} %`,
    whole(perSecond(over.refused)),
    whole(perSecond(over.failed)),
    `${whole(over.p99)} ms`,
    `${(after.lastTroubleMs / 1000).toFixed(1)} s`,
    `${below.refused}, ${whole(below.p99)} ms`,
  ];
  print(`${name.padEnd(20)}${columns.map((text) => text.padStart(11)).join("")}  ${met ? "met" : "NOT met"}`);
  const failure = phases.find((phase) => phase.failure)?.failure;
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
    `Per second, over ${seconds} s${pinned ? ", the server on core 0, load on core 1" : ""}. Capacity: a closed loop of ${callers} callers, none of whom was refused.\n` +
      "Costs in microseconds of processor time: of an answer there, and of a refusal by a bare server.\n" +
      "Left: answers for which the server had processor time, after as many refusals (issuing, refresh: all of its time).\n" +
      "Recovery: the last refused, failed or slow (250 ms) answer after the load fell to half of the capacity.\n",
  );
  const heads = ["capacity", "answer", "refusal", "offered", "left", "goodput", "of left"];
  const more = ["refused", "failed", "p99", "recovery", "at 80 %"];
  print(`${"".padEnd(20)}${[...heads, ...more].map((head) => head.padStart(11)).join("")}`);
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
