/**
 * `npm run bench:standbys`: the processor time of introspection over HTTP, by who takes it: one process and two, with no
 * standby, one and two. All of them and the load share the processors of this machine, so the rate is that of all
 * together, and what counts is the time. Rounds go through all forms in turn. From it follows how many cores a
 * deployment needs for so many introspections a second. Needs PostgreSQL's programs.
 *
 *   BENCH_REQUESTS=100000  BENCH_ROUNDS=3  BENCH_PER_SECOND=200000
 */
import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { type AuthProcess, spawnAuthServer } from "../support/auth-server.ts";
import { findPostgresql, installPostgresql } from "../support/postgresql/binaries.ts";
import { startCluster } from "../support/postgresql/cluster.ts";
import { commitsWaitFor, isReadBy, startStandby, until } from "../support/postgresql/standby.ts";
import { columns } from "../support/table.ts";
import { median } from "./percentiles.ts";
import { introspector, prepare } from "./prepare.ts";
import { measure } from "./processes.ts";
import { postgresSeconds, processorSeconds } from "./processor-seconds.ts";
import { basic } from "./product.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const requests = Number(process.env["BENCH_REQUESTS"] ?? 100_000);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 3);
const planned = Number(process.env["BENCH_PER_SECOND"] ?? 200_000);
/** Tokens that are asked about. */
const tokens = 20_000;
/** In flight at each process. */
const inFlight = 64;
const idleSeconds = 10;
const forms = [1, 2].flatMap((processes) => [0, 1, 2].map((standbys) => ({ processes, standbys })));

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

/** Seconds of processor time: of all processes of the product, and of each server of PostgreSQL, the primary first. */
interface Times {
  readonly processes: number;
  readonly databases: readonly number[];
}

interface Figures extends Times {
  readonly perSecond: number;
  /** In a second in which nobody asks. */
  readonly idle: Times;
}

const programs = findPostgresql(["initdb", "postgres", "pg_basebackup"]);
if (programs === undefined) {
  print(`This measurement needs PostgreSQL's programs. ${installPostgresql}`);
  process.exit(1);
}
await using cleanup = new AsyncDisposableStack();
const primary = await startCluster(programs);
cleanup.defer(() => primary.stop());
process.env["TEST_POSTGRES_URL"] = primary.url;
const preparation = await prepare(tokens, () => undefined);
cleanup.defer(() => rmSync(preparation.directory, { recursive: true, force: true }));
const names = ["standby_1", "standby_2"];
const urls = [primary.url];
for (const name of names) {
  const standby = await startStandby(programs, [], primary.url, name);
  cleanup.defer(() => standby.stop());
  urls.push(standby.url);
}
const databases = urls.map((url) => {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  cleanup.defer(() => sql.end({ timeout: 1 }));
  return sql;
});
const [admin] = databases;
if (!admin) throw new Error("there is no primary");
await commitsWaitFor(admin, names);

async function timesOf(servers: readonly AuthProcess[]): Promise<Times> {
  const processes = servers.reduce((sum, { child }) => sum + processorSeconds(child.pid ?? 0), 0);
  return { processes, databases: await Promise.all(databases.map(postgresSeconds)) };
}

/** The difference of two times, times a factor. */
const between = (before: Times, after: Times, factor: number): Times => ({
  processes: (after.processes - before.processes) * factor,
  databases: after.databases.map((time, index) => (time - (before.databases[index] ?? 0)) * factor),
});

/** Sends so many introspections to each server. @returns how many were answered in a second, by all */
async function load(servers: readonly AuthProcess[], count: string): Promise<number> {
  const rates = await Promise.all(
    servers.map(({ origin }) =>
      measure("any", "load-closed.ts", [
        ...["http", new URL(origin).port, basic(introspector), preparation.introspections],
        ...[String(inFlight), count],
      ]),
    ),
  );
  return rates.reduce((sum, { perSecond }) => sum + perSecond, 0);
}

async function measureForm({ processes, standbys }: (typeof forms)[number]): Promise<Figures> {
  await using stopping = new AsyncDisposableStack();
  const readHosts = urls.slice(1, 1 + standbys).map((url) => new URL(url).host);
  const env = {
    ...preparation.env,
    ...(standbys > 0 && { DB_READ_HOSTS: readHosts.join(",") }),
    // It says what is read from.
    LOGGING_LEVEL: "info",
    DATA_DIR: preparation.directory,
  };
  const servers: AuthProcess[] = [];
  for (let left = processes; left > 0; left -= 1) {
    const server = await spawnAuthServer("PostgreSQL", { env });
    stopping.defer(() => server.stop());
    servers.push(server);
  }
  await until("all processes read from the standbys", () =>
    servers.every((server) => readHosts.every((host) => isReadBy(server, host))),
  );
  // They see every token, and V8 compiles.
  await load(servers, "once");
  await load(servers, "once");
  const before = await timesOf(servers);
  const perSecond = await load(servers, `x${Math.round(requests / processes)}`);
  const after = await timesOf(servers);
  await setTimeout(1_000);
  const quiet = await timesOf(servers);
  await setTimeout(idleSeconds * 1_000);
  const idle = between(quiet, await timesOf(servers), 1 / idleSeconds);
  return { perSecond, idle, ...between(before, after, 100_000 / requests) };
}

/** By the index of the form. */
const measured = forms.map((): Figures[] => []);
for (let round = 0; round < rounds; round += 1)
  for (const [index, form] of forms.entries()) measured[index]?.push(await measureForm(form));

/** The medians of the rounds of a form. */
function medians(all: readonly Figures[], timesIn: (figures: Figures) => Times): number[] {
  const rows = all.map(timesIn).map((times) => [times.processes, ...times.databases]);
  return [0, 1, 2, 3].map((column) => median(rows.map((row) => row[column] ?? 0)));
}

const heads = ["processes", "primary", "standby 1", "standby 2", "together"];
function table(title: string, cellsOf: (all: readonly Figures[]) => string[], more: readonly string[]): void {
  print(`\n${title}`);
  const rows = forms.map(({ processes, standbys }, index) => [
    `${processes} ${processes === 1 ? "process" : "processes"}, ${standbys} ${standbys === 1 ? "standby" : "standbys"}`,
    ...cellsOf(measured[index] ?? []),
  ]);
  for (const line of columns([["", ...heads, ...more], ...rows])) print(line);
}
const withSum = (values: readonly number[], digits: number) =>
  [...values, values.reduce((sum, value) => sum + value, 0)].map((value) => value.toFixed(digits));

print(
  `Medians of ${rounds} rounds, ${number(requests)} introspections each, ${inFlight} in flight at each process; all on the same processors.`,
);
table(
  "Processor seconds for 100,000 introspections",
  (all) => [
    ...withSum(
      medians(all, (figures) => figures),
      2,
    ),
    number(median(all.map(({ perSecond }) => perSecond))),
  ],
  ["a second"],
);
table(
  `Cores for ${number(planned)} introspections a second, at that price`,
  (all) =>
    withSum(
      medians(all, (figures) => figures).map((seconds) => (seconds * planned) / 100_000),
      1,
    ),
  [],
);
table(
  "Milliseconds of processor time a second while nobody asks",
  (all) =>
    withSum(
      medians(all, ({ idle }) => idle).map((seconds) => seconds * 1_000),
      1,
    ),
  [],
);
