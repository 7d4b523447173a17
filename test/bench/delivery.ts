/**
 * `npm run bench:delivery`: how fast a send that is planned goes out, by one process and by several, to a provider that
 * is well, slow, or troubled. PostgreSQL, the FCM fake and the workers are processes of their own, on loopback.
 *
 *   BENCH_DEVICES=100000
 *   BENCH_PROCESSES=1,4
 *   BENCH_OUTAGE_SECONDS=600   of 503s, once half of the devices have their message
 *   BENCH_ONLY=healthy         only rows whose name begins so
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { createTestDatabase, postgresSettings } from "../support/backends.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { fillAudience } from "../support/send-audience.ts";
import { run, type Trouble } from "./delivery-run.ts";
import { startFakes } from "./send-world.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const devices = Number(process.env["BENCH_DEVICES"] ?? 100_000);
const processCounts = (process.env["BENCH_PROCESSES"] ?? "1,4").split(",").map(Number);
const outageSeconds = Number(process.env["BENCH_OUTAGE_SECONDS"] ?? 600);
const only = process.env["BENCH_ONLY"] ?? "";

const troubles: readonly Trouble[] = [
  { name: "healthy" },
  { name: "all after 150 ms", scenario: { delayMs: 150 } },
  { name: "all after 500 ms", scenario: { delayMs: 500 } },
  { name: "0.1 % after 2 s", scenario: { share: 0.001, delayMs: 2_000 } },
  { name: "0.1 % never", scenario: { share: 0.001, fault: "timeout" } },
  {
    name: "1 % of another project",
    scenario: { share: 0.01, shareOf: "tokens", answer: "SENDER_ID_MISMATCH" },
  },
  { name: `${outageSeconds} s of 503`, inTheMiddle: { answer: "UNAVAILABLE", seconds: outageSeconds } },
];

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

/** Rates by the name of the row, to be compared. */
type Rates = Map<string, number>;

async function table(processes: number, bench: Parameters<typeof run>[0]): Promise<Rates> {
  print(`\n${number(devices)} devices, ${processes} ${processes === 1 ? "process" : "processes"}`);
  print("Answers                  Messages/s   Last after   Repeats   Failed   Lost   Processor seconds");
  const rates: Rates = new Map();
  for (const trouble of troubles.filter(({ name }) => name.startsWith(only))) {
    const figures = await run(bench, processes, trouble);
    rates.set(trouble.name, figures.perSecond);
    print(
      [
        trouble.name.padEnd(24),
        number(figures.perSecond).padStart(11),
        `${figures.lastAfter.toFixed(1)} s`.padStart(13),
        number(figures.repeats).padStart(10),
        number(figures.failed).padStart(9),
        number(figures.lost).padStart(7),
        figures.cpuSeconds.toFixed(1).padStart(12),
      ].join(""),
    );
    if (figures.lastAfterTrouble !== undefined)
      print(`  the last ${figures.lastAfterTrouble.toFixed(1)} s after its end`);
    if (figures.lost !== 0) process.exitCode = 1;
  }
  return rates;
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
const directory = mkdtempSync(join(tmpdir(), "gatepost-bench-"));
const holder = await createTestDatabase();
const settings = { ...postgresSettings(holder), poolSize: 10 };
const database = await openDatabase(settings, pushMigrations);
const fakes = await startFakes(join(directory, "fakes"));
try {
  await database.migrate();
  await fillAudience(database.db, { devices, users: devices });
  await database.db.execute("analyze push.devices");
  const bench = { database, settings, fakes, devices };
  print("Warming up");
  await run(bench, 1, { name: "warm-up" });
  for (const processes of processCounts) {
    const rates = await table(processes, bench);
    const [healthy, slow] = [rates.get("healthy"), rates.get("0.1 % after 2 s")];
    if (healthy === undefined || slow === undefined) continue;
    const share = slow / healthy;
    const isMet = share >= 0.8;
    print(
      `0.1 % after 2 s: ${Math.round(share * 100)} % of healthy (aim 80 %): ${isMet ? "met" : "NOT met"}`,
    );
    if (!isMet) process.exitCode = 1;
  }
} finally {
  await fakes.stop();
  await database.close();
  await holder.drop();
  await stopPostgresql();
  rmSync(directory, { recursive: true, force: true });
}
