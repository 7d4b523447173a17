/**
 * `npm run bench:send`: a send to a million devices, from acceptance to the provider's ledger. An auth and a push
 * process on one PostgreSQL, and the FCM fake, each a process of its own, on loopback.
 *
 *   BENCH_DEVICES=1000000  BENCH_USERS=400000
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { usageIn } from "../../scripts/command.ts";
import { progressBar } from "../../scripts/progress-bar.ts";
import { readArguments } from "../../src/command.ts";
import { emptyOffset, fillAudience, historyOf, worldOffsets } from "../support/send-audience.ts";
import { type BenchDatabase, inBenchDatabase } from "./database.ts";
import { median } from "./percentiles.ts";
import { measurePlanning } from "./planning.ts";
import type { BenchServer } from "./processes.ts";
import {
  backofficeToken,
  pushBase as base,
  progressOf,
  servicePorts,
  startFakes,
  startServices,
} from "./send-world.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const devices = Number(process.env["BENCH_DEVICES"] ?? 1_000_000);
const users = Number(process.env["BENCH_USERS"] ?? Math.ceil(devices * 0.4));

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");
const verdict = (met: boolean) => (met ? "met" : "NOT met");

async function send(token: string, utcOffsets: readonly number[]): Promise<{ id: string; ms: number }> {
  const started = performance.now();
  const response = await fetch(`${base}/push`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify({ title: "Good morning", message: "The shop opens at nine.", utcOffsets }),
  });
  const ms = performance.now() - started;
  if (response.status !== 204) throw new Error(`send: ${response.status} ${await response.text()}`);
  return { id: response.headers.get("notification-id") ?? "", ms };
}

/** Sends, watches, and asks for further sends meanwhile, as other callers would. */
async function watchSend(token: string) {
  const bar = progressBar("Sending");
  const started = performance.now();
  const { id, ms } = await send(token, worldOffsets);
  const accepted: number[] = [];
  let progress = await progressOf(token, id);
  let plannedAfter = 0;
  while (progress.state !== "COMPLETED") {
    await setTimeout(250);
    accepted.push((await send(token, [emptyOffset])).ms);
    progress = await progressOf(token, id);
    const seconds = (performance.now() - started) / 1000;
    if (plannedAfter === 0 && progress.state !== "PLANNING") plannedAfter = seconds;
    bar.show(progress.sent, devices, `${number(progress.sent)} sent, ${number(progress.sent / seconds)}/s`);
    if (seconds > 1_800) throw new Error(`not done after ${seconds} s: ${JSON.stringify(progress)}`);
  }
  bar.end();
  return {
    id,
    ms,
    accepted,
    progress,
    seconds: (performance.now() - started) / 1000,
    plannedAfter,
  };
}

async function run({ database, adminUrl, environment }: BenchDatabase, dataDir: string): Promise<boolean> {
  const filling = progressBar("Filling the tables");
  await fillAudience(database.db, { devices, users }, (count) => filling.show(count, devices, number(count)));
  filling.end();
  await database.db.execute("analyze push.devices");

  const planning = await measurePlanning(database, adminUrl);
  const planRatio = planning.perSecond / planning.rawPerSecond;

  const fakes = await startFakes(join(dataDir, "fakes"));
  const services: BenchServer[] = [];
  try {
    const { auth, push } = await startServices(
      "../../src/start.js",
      { ...environment, DATA_DIR: dataDir },
      { ...fakes.env, PUSH_PROVIDERS: "fcm" },
    );
    services.push(push, auth);
    const token = await backofficeToken(`http://127.0.0.1:${servicePorts.auth}/api/auth`);
    const result = await watchSend(token);
    const ledger = await fakes.ledger();
    const history = await historyOf(database.db, result.id);
    const memory = push.peakMemory() ?? Number.NaN;
    const rate = devices / result.seconds;
    // Where none was sent meanwhile, the send itself is the only one.
    const accepted = median(result.accepted.length > 0 ? result.accepted : [result.ms]);
    const isExact =
      ledger.tokens === devices &&
      ledger.messages === devices &&
      ledger.repeats === 0 &&
      ledger.strangers === 0;
    const checks: [string, string, boolean][] = [
      [
        "Devices in the provider's ledger",
        `${number(ledger.tokens)} of ${number(devices)}, ${ledger.messages - ledger.tokens} repeats, ${ledger.strangers} elsewhere`,
        isExact,
      ],
      [
        "History rows",
        `${number(history.rows)} rows, ${number(history.users)} users`,
        history.rows === history.users && history.users === Math.min(users, devices),
      ],
      [
        "Acceptance while it runs, median",
        `${accepted.toFixed(1)} ms of ${result.accepted.length} sends (aim 50 ms)`,
        accepted <= 50,
      ],
      ["Messages a second, from 204 to done", `${number(rate)} (aim 5,000)`, rate >= 5_000],
      ["Peak memory of the process", `${memory.toFixed(0)} MiB (aim 384)`, memory <= 384],
      [
        "Planning",
        `${number(planning.perSecond)} recipients a second = ${(planRatio * 100).toFixed(0)} % of INSERT … SELECT of a row each, at ${number(planning.rawPerSecond)} (aim 50 %)`,
        planRatio >= 0.5,
      ],
    ];
    print("");
    for (const [what, figure, met] of checks) print(`${what.padEnd(38)}${figure}: ${verdict(met)}`);
    print(
      `The first send to these users was planned at ${number(planning.firstPerSecond)} recipients a second.`,
    );
    print(`Planned after ${result.plannedAfter.toFixed(1)} s, done after ${result.seconds.toFixed(1)} s.`);
    return checks.every(([, , met]) => met);
  } finally {
    for (const service of services) await service.stop();
    await fakes.stop();
  }
}

const dataDir = mkdtempSync(join(tmpdir(), "gatepost-bench-"));
try {
  await inBenchDatabase((bench) => run(bench, dataDir));
} finally {
  rmSync(dataDir, { recursive: true, force: true });
}
