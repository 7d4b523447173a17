/**
 * `npm run bench:personal`: sends to named users, 10,000 of whom have 25,000 devices. First 64 callers send to each of
 * them alone, then all of them get sends together. An auth and a push process on one PostgreSQL, and the FCM fake, each
 * a process of its own, on loopback, without pacing.
 *
 *   BENCH_DEVICES=1000000   devices in the table, those of the named users among them
 *   BENCH_ROUNDS=5          sends to all of the named users
 */
import { mkdtempSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { usageIn } from "../../scripts/command.ts";
import { progressBar } from "../../scripts/progress-bar.ts";
import { readArguments } from "../../src/command.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { asSuperuser } from "../support/as-superuser.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { fillAudience } from "../support/send-audience.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { median, percentiles } from "./percentiles.ts";
import type { BenchServer } from "./processes.ts";
import { backofficeToken, type Fakes, servicePorts, startFakes, startServices } from "./send-world.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const devices = Number(process.env["BENCH_DEVICES"] ?? 1_000_000);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 5);
const callers = 64;
const users = Math.ceil(devices / 2.5);
/** As many of them have three devices as have two: the first half of all users has three each. */
const named = Array.from({ length: 10_000 }, (_, index) => Math.floor(users / 2) - 4_999 + index);
const namedDevices = 25_000;
const base = `http://127.0.0.1:${servicePorts.push}/api/push-orchestration/v1/pushprovider/notifications`;

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");
/** Milliseconds since the epoch, with fractions. */
const now = () => performance.timeOrigin + performance.now();

/** Seconds of processor time so far, of the parts and of the whole machine. */
function processorSeconds({ push, auth }: Services): Record<string, number> {
  const { user, system } = process.cpuUsage();
  const all = cpus().map(({ times }) => times.user + times.nice + times.sys + times.irq);
  return {
    push: push.processorSeconds() ?? Number.NaN,
    auth: auth.processorSeconds() ?? Number.NaN,
    callers: (user + system) / 1e6,
    machine: all.reduce((sum, ms) => sum + ms, 0) / 1000,
  };
}

type Services = Awaited<ReturnType<typeof startServices>>;
type Check = readonly [what: string, figure: string, isMet: boolean];
type Send = ReturnType<typeof senderWith>;

function senderWith(token: string) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  /** @returns when the 201 came, and how long it took */
  return async (to: readonly number[]): Promise<{ at: number; ms: number }> => {
    const body = JSON.stringify({
      audience: { users: to.map((user) => `user-${user}`) },
      content: { texts: { en: { title: "Your parcel", message: "It comes tomorrow." } } },
    });
    const askedAt = now();
    const response = await fetch(base, { method: "POST", headers, body });
    const at = now();
    const text = await response.text();
    if (response.status !== 201) throw new Error(`send: ${response.status} ${text}`);
    return { at, ms: at - askedAt };
  };
}

/** Waits until each of the devices has its message. @returns whether it has one, and nobody else has */
async function allArrived(fakes: Fakes): Promise<boolean> {
  const deadline = now() + 120_000;
  while ((await fakes.summary()).tokens < namedDevices && now() < deadline) await setTimeout(50);
  const { tokens, messages, strangers } = await fakes.ledger();
  return tokens === namedDevices && messages === namedDevices && strangers === 0;
}

/** The devices that got a message, with when, and whose they are. */
async function* arrivals(fakes: Fakes) {
  for await (const { token, messages } of fakes.tokens())
    yield { user: Number(token.replace("device-", "")) % users, at: messages[0]?.firstAt ?? Number.NaN };
}

/** A send to each user alone. */
async function measureEach(fakes: Fakes, send: Send, services: Services): Promise<Check[]> {
  const acceptedAt = new Map<number, number>();
  const took: number[] = [];
  const bar = progressBar("Sending to one each");
  const left = named.values();
  const startedAt = now();
  const before = processorSeconds(services);
  await Promise.all(
    Array.from({ length: callers }, async () => {
      for (const user of left) {
        const { at, ms } = await send([user]);
        acceptedAt.set(user, at);
        took.push(ms);
        if (took.length % 500 === 0) bar.show(took.length, named.length, number(took.length));
      }
    }),
  );
  const accepted = (named.length * 1000) / (now() - startedAt);
  bar.end();
  const isExact = await allArrived(fakes);
  const waits: number[] = [];
  let lastAt = startedAt;
  for await (const { user, at } of arrivals(fakes)) {
    waits.push(at - (acceptedAt.get(user) ?? Number.NaN));
    lastAt = Math.max(lastAt, at);
  }
  const rate = (named.length * 1000) / (lastAt - startedAt);
  const used = Object.entries(processorSeconds(services))
    .map(
      ([what, seconds]) => `${what} ${(((seconds - (before[what] ?? 0)) * 1000) / named.length).toFixed(2)}`,
    )
    .join(", ");
  print(`Milliseconds of processor time for each send: ${used}`);
  const [calls, arrived] = [percentiles(took), percentiles(waits)];
  return [
    [
      "Sends to one a second, all arrived",
      `${number(rate)}, accepted ${number(accepted)} (aim 500)`,
      rate >= 500,
    ],
    [
      "From 201 to the ledger",
      `p50 ${number(arrived.p50)} ms, p99 ${number(arrived.p99)} ms (aim 500 ms)`,
      arrived.p99 <= 500,
    ],
    ["Each device once", `${number(waits.length)} devices`, isExact],
    ["Until 201", `p50 ${number(calls.p50)} ms, p99 ${number(calls.p99)} ms`, true],
  ];
}

/** Sends to all of the users. */
async function measureAll(fakes: Fakes, send: Send): Promise<Check[]> {
  const until201: number[] = [];
  const first: number[] = [];
  const last: number[] = [];
  let isExact = true;
  for (let round = 0; round < rounds; round += 1) {
    await fakes.clear();
    // Completing the sends before is work of its own.
    await setTimeout(2_000);
    const { at, ms } = await send(named);
    isExact = (await allArrived(fakes)) && isExact;
    const { firstAt, lastAt } = await fakes.summary();
    until201.push(ms);
    first.push((firstAt ?? Number.NaN) - at);
    last.push((lastAt ?? Number.NaN) - at);
  }
  const list = (values: readonly number[]) => values.map(number).join(", ");
  return [
    ["To 10,000: until 201", `${list(until201)} ms (aim 50 ms, median)`, median(until201) <= 50],
    ["The first message after it", `${list(first)} ms (aim 100 ms)`, Math.max(...first) <= 100],
    ["The last message after it", `${list(last)} ms (aim 3,000 ms)`, Math.max(...last) <= 3_000],
    ["Each device once", `${number(namedDevices)} devices`, isExact],
  ];
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
await using cleanup = new AsyncDisposableStack();
cleanup.defer(stopPostgresql);
const dataDir = mkdtempSync(join(tmpdir(), "gatepost-bench-"));
cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
const holder = await createTestDatabase();
cleanup.defer(() => holder.drop());
const database = await openDatabase({ ...postgresSettings(holder), poolSize: 4 }, pushMigrations);
cleanup.defer(() => database.close());
await database.migrate();
const filling = progressBar("Filling the tables");
await fillAudience(database.db, { devices, users }, (count) => filling.show(count, devices, number(count)));
filling.end();
await asSuperuser(database.db, "analyze push.devices");

const fakes = await startFakes(join(dataDir, "fakes"));
cleanup.defer(() => fakes.stop());
const services = await startServices(
  "../../src/start.js",
  { ...databaseEnvironment(holder), DATA_DIR: dataDir },
  { ...fakes.env, PUSH_PROVIDERS: "fcm" },
);
for (const service of Object.values<BenchServer>(services)) cleanup.defer(() => service.stop());
const send = senderWith(await backofficeToken(`http://127.0.0.1:${servicePorts.auth}/api/auth`));
const checks = [...(await measureEach(fakes, send, services)), ...(await measureAll(fakes, send))];
for (const [what, figure, isMet] of checks)
  print(`${what.padEnd(36)}${figure}: ${isMet ? "met" : "NOT met"}`);
process.exitCode = checks.every(([, , isMet]) => isMet) ? 0 : 1;
