/**
 * `npm run bench:cache`: would a cache of authorization state be worth its place? Processes look tokens up, gathered into
 * batches as introspection gathers them: in PostgreSQL, by the product's own statement, and in Redis, by MGET of one key
 * for each token, which is the least that a cache could ask. Nothing of HTTP and of tokens is in it. Both stores in
 * turns, on the same processors as the processes. Needs PostgreSQL and Redis.
 *
 *   BENCH_LOOKS=400000  BENCH_ROUNDS=3  BENCH_PROCESSES=1,2,4  BENCH_IN_FLIGHT=64
 */
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeJwt } from "jose";
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { spawnAuthServer } from "../support/auth-server.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql, requiredPostgresUrl } from "../support/postgresql/server.ts";
import { findRedis, startRedis } from "../support/redis.ts";
import { columns } from "../support/table.ts";
import type { Looked, Task } from "./cache-looks.ts";
import { median } from "./percentiles.ts";
import { prepare } from "./prepare.ts";
import { run } from "./processes.ts";
import { postgresSeconds } from "./processor-seconds.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const looks = Number(process.env["BENCH_LOOKS"] ?? 400_000);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 3);
const processCounts = (process.env["BENCH_PROCESSES"] ?? "1,2,4").split(",").map(Number);
const inFlight = Number(process.env["BENCH_IN_FLIGHT"] ?? 64);
const tokens = 20_000;
/** Looks of each process before it measures. */
const warmUp = 50_000;

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

await using cleanup = new AsyncDisposableStack();
const stopPostgresql = await providePostgresql({ durable: true });
cleanup.defer(stopPostgresql);
if (!postgresUrl() || findRedis() === undefined) {
  print(`This measurement needs PostgreSQL and Redis. ${installPostgresql}`);
  process.exit(1);
}
const { database, directory, env, tokens: tokenFile } = await prepare(tokens, () => undefined);
cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
cleanup.defer(() => database.drop());
// A token is only live if its client is listed.
const server = await spawnAuthServer("PostgreSQL", {
  env: { ...env, LOGGING_LEVEL: "info", DATA_DIR: directory },
});
await server.stop();
const jtis = readFileSync(tokenFile, "utf8")
  .trimEnd()
  .split("\n")
  .map((token) => decodeJwt(token).jti ?? "");
const file = join(directory, "jtis");
writeFileSync(file, jtis.join("\n"));

const redis = await startRedis();
cleanup.defer(() => redis.stop());
for (let from = 0; from < jtis.length; from += 1_000)
  await redis.command("MSET", ...jtis.slice(from, from + 1_000).flatMap((jti) => [jti, "1"]));
const sql = postgres(requiredPostgresUrl().href, { max: 1, onnotice: () => undefined });
cleanup.defer(() => sql.end({ timeout: 1 }));

async function redisSeconds(): Promise<number> {
  const info = String(await redis.command("INFO", "cpu"));
  const times = [...info.matchAll(/^used_cpu_(?:sys|user):([\d.]+)/gm)].map(([, seconds]) => Number(seconds));
  return times.reduce((sum, seconds) => sum + seconds, 0);
}

const stores = {
  PostgreSQL: { task: { database }, seconds: () => postgresSeconds(sql) },
  Redis: { task: { redis: redis.settings.port }, seconds: redisSeconds },
} satisfies Record<string, { task: Partial<Task>; seconds: () => Promise<number> }>;
type StoreName = keyof typeof stores;

/** Seconds are of processor time, for 100,000 looks. */
interface Figures {
  readonly perSecond: number;
  readonly processes: number;
  readonly store: number;
}

async function measureStore(name: StoreName, processes: number): Promise<Figures> {
  const { task, seconds } = stores[name];
  const each = Math.round(looks / processes);
  const own: Task = { ...task, file, inFlight, looks: each, warmUp };
  const before = await seconds();
  const looked = await Promise.all(
    Array.from({ length: processes }, async (): Promise<Looked> => {
      return JSON.parse(await run("any", "cache-looks.ts", [JSON.stringify(own)]));
    }),
  );
  const store = (await seconds()) - before;
  const sum = (of: (one: Looked) => number) => looked.reduce((total, one) => total + of(one), 0);
  return {
    perSecond: sum(({ perSecond }) => perSecond),
    processes: (sum(({ processorSeconds }) => processorSeconds) * 100_000) / (each * processes),
    // It has answered those before the measurement, too.
    store: (store * 100_000) / ((each + warmUp) * processes),
  };
}

const names: readonly StoreName[] = ["PostgreSQL", "Redis"];
const rows = processCounts.flatMap((processes) =>
  names.map((name) => ({ processes, name, figures: [] as Figures[] })),
);
for (let round = 0; round < rounds; round += 1)
  for (const { processes, name, figures } of rows) figures.push(await measureStore(name, processes));

print(
  `Medians of ${rounds} rounds, ${number(looks)} looks each, ${inFlight} in flight at each process; processor seconds, theirs and the store's, for 100,000.`,
);
const cells = rows.map(({ processes, name, figures }) => {
  const of = (value: (figures: Figures) => number) => median(figures.map(value));
  return [
    String(processes),
    name,
    number(of(({ perSecond }) => perSecond)),
    of((one) => one.processes).toFixed(2),
    of(({ store }) => store).toFixed(2),
    of((one) => one.processes + one.store).toFixed(2),
  ];
});
for (const line of columns([
  ["Processes", "Store", "Looks/s", "theirs", "the store's", "together"],
  ...cells,
]))
  print(line);
