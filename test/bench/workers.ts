/**
 * `npm run bench:workers`: two workers beside one process. The processor time of introspections over HTTP, that of the
 * load and of PostgreSQL left out; then the p99 of introspection alone, and while passwords are set without a pause, each
 * of which takes a core for some 10 ms. Rounds go through both forms in turn. Load, PostgreSQL and workers share all
 * processors. Needs PostgreSQL: this machine's, or TEST_POSTGRES_URL.
 *
 *   BENCH_REQUESTS=100000  BENCH_ROUNDS=3  BENCH_SECONDS=8
 */
import { randomInt, randomUUID } from "node:crypto";
import { rmSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { type ServerProcess, spawnServer } from "../support/servers.ts";
import { columns } from "../support/table.ts";
import { median } from "./percentiles.ts";
import { introspector, prepare } from "./prepare.ts";
import { type Measured, measure } from "./processes.ts";
import { processorSeconds } from "./processor-seconds.ts";
import { basic } from "./product.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const requests = Number(process.env["BENCH_REQUESTS"] ?? 100_000);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 3);
const seconds = process.env["BENCH_SECONDS"] ?? "8";
const forms = [1, 2];
const tokens = 20_000;
/** At least eight for each worker: connections are dealt, not requests. */
const connections = 64;
/** Callers that set passwords, each one after the other. */
const setters = 16;

const print = (line: string) => process.stdout.write(`${line}\n`);

interface Figures {
  readonly processorSeconds: number;
  readonly perSecond: number;
  readonly p99: number;
  readonly floodedP99: number;
  /** Passwords that were set in a second. */
  readonly passwords: number;
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`The benchmark needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const preparation = await prepare(tokens, () => undefined);
const { INTERNAL_CLIENT_ID: id = "", INTERNAL_CLIENT_SECRET: secret = "" } = preparation.env;

function introspect({ origin }: ServerProcess, duration: string): Promise<Measured> {
  const target = ["http", new URL(origin).port, basic(introspector), preparation.introspections];
  return measure("any", "load-closed.ts", [...target, String(connections), duration]);
}

/** Sets passwords until the signal. @returns how many; refusals, of which an overloaded server has some, do not count */
async function setPasswords({ origin }: ServerProcess, until: AbortSignal): Promise<number> {
  const headers = { authorization: basic({ id, secret }), "content-type": "application/json" };
  const call = async (method: string, path: string, body: object) => {
    const url = `${origin}/api/auth/v1/identities${path}`;
    const response = await fetch(url, { method, headers, body: JSON.stringify(body) });
    await response.arrayBuffer();
    if (!response.ok && response.status !== 503) throw new Error(`${method} ${url}: ${response.status}`);
    return response.ok;
  };
  let set = 0;
  // Identities of their own: a password that is set ends the tokens of its identity.
  const all = Array.from({ length: setters }, async () => {
    const identity = randomUUID();
    await call("POST", "", { id: identity, phone: `+1415${randomInt(2_000_000, 9_000_000)}` });
    while (!until.aborted)
      if (await call("PUT", `/${identity}/password`, { password: `a long password, ${set}` })) set += 1;
  });
  await Promise.all(all);
  return set;
}

async function measureForm(workers: number): Promise<Figures> {
  const env = { ...preparation.env, SERVICES: "auth", WORKERS: String(workers), LOGGING_LEVEL: "info" };
  const server = await spawnServer("PostgreSQL", { env: { ...env, DATA_DIR: preparation.directory } });
  try {
    while (workers > 1 && server.logs().split("A worker listens").length <= workers) await setTimeout(50);
    // Each worker sees the tokens, and V8 compiles.
    for (let time = 0; time < 2 * workers; time += 1) await introspect(server, "once");
    const pid = server.child.pid ?? 0;
    const before = processorSeconds(pid);
    const { perSecond } = await introspect(server, `x${requests}`);
    const used = processorSeconds(pid) - before;
    const { p99 = Number.NaN } = await introspect(server, seconds);
    const flood = new AbortController();
    const setting = setPasswords(server, flood.signal);
    const [flooded, set] = await Promise.all([
      introspect(server, seconds).finally(() => flood.abort()),
      setting,
    ]);
    const passwords = set / Number(seconds);
    const floodedP99 = flooded.p99 ?? Number.NaN;
    return { processorSeconds: (used * 100_000) / requests, perSecond, p99, floodedP99, passwords };
  } finally {
    await server.stop();
  }
}

try {
  const measured = new Map(forms.map((workers): [number, Figures[]] => [workers, []]));
  for (let round = 0; round < rounds; round += 1)
    for (const [workers, all] of measured) all.push(await measureForm(workers));
  print(`Medians of ${rounds} rounds; ${connections} connections with a request in flight on each.\n`);
  const rows = [...measured].map(([workers, all]) => {
    const of = (figure: (figures: Figures) => number, digits: number) =>
      median(all.map(figure)).toFixed(digits);
    return [
      workers === 1 ? "one process" : `${workers} workers`,
      of((one) => one.processorSeconds, 2),
      of((one) => one.perSecond, 0),
      `${of((one) => one.p99, 1)} ms`,
      `${of((one) => one.floodedP99, 1)} ms`,
      of((one) => one.passwords, 0),
    ];
  });
  const heads = ["", "CPU s for 100,000", "a second", "p99", "p99 beside passwords", "passwords a second"];
  for (const line of columns([heads, ...rows])) print(line);
} finally {
  await preparation.database.drop();
  await stopPostgresql();
  rmSync(preparation.directory, { recursive: true, force: true });
}
