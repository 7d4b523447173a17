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
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { application, introspector, type Preparation, prepare } from "./prepare.ts";
import { measure, pinned, run, startBenchServer } from "./processes.ts";
import { basic, introspectPath, ports, startProduct, tokensPath, warmIntrospection } from "./product.ts";

const seconds = Number(process.env["BENCH_SECONDS"] ?? 8);
const only = process.env["BENCH_ONLY"]?.split(",");
/** Authorizations, of which each is refreshed once at a time. */
const count = 4_000;
const callers = 256;
const warmUpSeconds = "5";

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
  readonly seconds: number;
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

/** @returns answers a second. Throws if one of them was a refusal: so few callers never get one */
async function capacityOf([file, ...args]: Kind["closed"], duration: string): Promise<number> {
  return (await measure(1, file, [...args, duration])).perSecond;
}

/** Refusals a second of a server that does nothing else. */
async function refusalsOf({ protocol, closed }: NonNullable<Kind["bare"]>): Promise<number> {
  const port = protocol === "grpc" ? ports.bareGrpc : ports.bareHttp;
  const bare = await startBenchServer("bare-refusal.ts", [protocol, `${port}`], {}, async () => {
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    socket.destroy();
    return true;
  });
  const [file, ...args] = closed;
  // Every answer is a refusal here, which the load takes for a failure.
  const { perSecond }: { perSecond: number } = JSON.parse(await run(1, file, [...args, `${seconds}`]));
  await bare.stop();
  return perSecond;
}

/** What is left for answers, in a second, while so many requests arrive, and those that are not answered are refused. */
function leftOver(offered: number, capacity: number, refusals: number): number {
  return Math.max(0, (1 - offered / refusals) / (1 / capacity - 1 / refusals));
}

async function overload({ name, closed, open, bare }: Kind): Promise<boolean> {
  await capacityOf(closed, warmUpSeconds);
  const capacity = await capacityOf(closed, `${seconds}`);
  const refusals = bare && (await refusalsOf(bare));
  const plan = [0.8, 2, 0.5].map((share) => `${Math.round(capacity * share)}x${seconds}`);
  const { phases }: { phases: Phase[] } = JSON.parse(await run(1, "load-open.ts", [...open, plan.join(",")]));
  const [below, over, after] = phases;
  if (!below || !over || !after) throw new Error("a phase is missing");
  const left = refusals === undefined ? capacity : leftOver(over.offered / over.seconds, capacity, refusals);
  const goodput = over.good / over.seconds;
  const met = goodput >= 0.8 * left && below.refused === 0 && after.lastTroubleMs <= 5_000;
  const columns = [
    whole(capacity),
    refusals === undefined ? "" : whole(refusals),
    whole(over.offered / over.seconds),
    whole(left),
    whole(goodput),
    `${((goodput / left) * 100).toFixed(0)} %`,
    whole(over.refused / over.seconds),
    whole(over.failed / over.seconds),
    `${whole(over.p99)} ms`,
    `${(after.lastTroubleMs / 1000).toFixed(1)} s`,
    `${below.refused}, ${whole(below.p99)} ms`,
  ];
  print(`${name.padEnd(22)}${columns.map((text) => text.padStart(12)).join("")}  ${met ? "met" : "NOT met"}`);
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
try {
  const product = await startProduct(preparation);
  await warmIntrospection(preparation);
  print(
    `All per second, over ${seconds} s${pinned ? ", the server on core 0, load on core 1" : ""}. Capacity: a closed loop of ${callers} callers, of whom none was refused.\n` +
      "Left: what arithmetic leaves for answers when the rest is refused at the rate of a bare server.\n" +
      "Recovery: the last refused, failed or slow (250 ms) answer after the load fell to half of the capacity.\n",
  );
  const heads = ["capacity", "bare ref.", "offered", "left", "goodput", "of left"];
  const more = ["refused", "failed", "p99", "recovery", "at 80 %"];
  print(`${"".padEnd(22)}${[...heads, ...more].map((head) => head.padStart(12)).join("")}`);
  let allMet = true;
  for (const [key, kind] of Object.entries(kindsOf(preparation)))
    if (only?.includes(key) ?? true) allMet = (await overload(kind)) && allMet;
  await product.stop();
  process.exitCode = allMet ? 0 : 1;
} finally {
  await preparation.database.drop();
  await stopPostgresql();
  rmSync(preparation.directory, { recursive: true, force: true });
}
