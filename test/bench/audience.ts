/**
 * `npm run bench:audience`: notifications to a language that one device in a thousand has; then one in 30 languages with
 * data to all devices, beside one by offsets, in turns; then previews. The processes are those of `bench:send`.
 *
 *   BENCH_DEVICES=1000000  BENCH_ROUNDS=2
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import postgres from "postgres";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import type { Database } from "../../src/platform/database/database.ts";
import { languageRange } from "../../src/push/content/languages.ts";
import { rows } from "../support/rows.ts";
import { fillAudience, worldOffsets } from "../support/send-audience.ts";
import { type BenchDatabase, inBenchDatabase } from "./database.ts";
import { median, percentiles } from "./percentiles.ts";
import {
  backofficeToken,
  type Fakes,
  progressOf,
  pushBase,
  servicePorts,
  startFakes,
  startServices,
} from "./send-world.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const devices = Number(process.env["BENCH_DEVICES"] ?? 1_000_000);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 2);
/** Sends to few devices that are timed. */
const smallSends = 5;
/** Previews that are timed, of each audience. */
const looks = 100;

const tags =
  "ar bg bn cs da de el en es fi fr he hi hu id it ja ko nl pl pt ro ru sv th tr uk vi zh zh-Hant".split(" ");
/** Of one device in a thousand; no text is in it. */
const rare = "is";

/** A title of each language's own letters. */
const texts = Object.fromEntries(
  tags.map((tag) => [
    tag,
    {
      title: new Intl.DisplayNames([tag], { type: "language" }).of(tag) ?? tag,
      message: "The shop opens at nine.",
    },
  ]),
);
const content = {
  defaultLanguage: "en",
  texts,
  data: { campaign: "summer", screen: "shop", article: "1234" },
};
const everybody = { everybody: true };
const rarely = { anyOf: [{ languages: [rare] }] };
const exceptUsers = Array.from({ length: 10_000 }, (_, user) => `user-${user}`);
const byOffsets = { title: "Good morning", message: "The shop opens at nine.", utcOffsets: worldOffsets };

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

async function post(token: string, path: string, body: object): Promise<Response> {
  const response = await fetch(`${pushBase}${path}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response;
}

/** Sends, and watches until all is sent. @param expected the devices that it must reach, each once */
async function send(token: string, { summary, clear }: Fakes, path: string, body: object, expected: number) {
  await clear();
  const startedAt = Date.now();
  const id = (await post(token, path, body)).headers.get("notification-id") ?? "";
  for (;;) {
    await setTimeout(100);
    const { state } = await progressOf(token, id);
    if (state === "COMPLETED") break;
    if (Date.now() - startedAt > 1_800_000) throw new Error(`${path} does not end: ${state}`);
  }
  const { tokens, messages, repeats, lastAt } = await summary();
  if (tokens !== expected || messages !== expected || repeats > 0) {
    throw new Error(`${path}: ${messages} messages for ${tokens} of ${expected} devices, ${repeats} repeats`);
  }
  const seconds = ((lastAt ?? Number.NaN) - startedAt) / 1000;
  return { id, seconds, perSecond: expected / seconds };
}

/** Devices that are sent to, and all is as it is in a service that has sent before: users have their numbers. */
async function prepare(db: Database, adminUrl: string): Promise<void> {
  await fillAudience(db, { devices, users: Math.ceil(devices * 0.4), languages: tags.map(languageRange) });
  const admin = postgres(adminUrl, { max: 1, onnotice: () => undefined });
  await admin`delete from push.devices where token not like 'device-%'`;
  await admin`update push.devices set language = ${languageRange(rare)} where id % 1000 = 0`;
  await admin`
    insert into push.history_users
    select user_id, nextval('push.history_user_numbers') from (select distinct user_id from push.devices) as known`;
  await admin`vacuum analyze`;
  await admin.end();
}

async function timePreviews(token: string, audience: object) {
  const took: number[] = [];
  for (let look = 0; look < looks; look += 1) {
    const startedAt = performance.now();
    await (await post(token, "/notifications/preview", { audience, content })).text();
    took.push(performance.now() - startedAt);
  }
  return percentiles(took);
}

async function chunksOf(db: Database, id: string): Promise<number> {
  const statement = sql`select chunks from push.notifications where id = ${id}::uuid`;
  const [found] = await rows<{ chunks: number }>(db, statement);
  return found?.chunks ?? 0;
}

async function run({ database: { db }, adminUrl, environment }: BenchDatabase, dataDir: string) {
  print(`Filling the table with ${number(devices)} devices`);
  await prepare(db, adminUrl);
  const fakes = await startFakes(join(dataDir, "fakes"));
  const { auth, push } = await startServices(
    "../../src/start.js",
    { ...environment, DATA_DIR: dataDir },
    { ...fakes.env, PUSH_PROVIDERS: "fcm" },
  );
  try {
    const token = await backofficeToken(`http://127.0.0.1:${servicePorts.auth}/api/auth`);
    let isAllMet = true;
    const verdict = (isMet: boolean) => {
      isAllMet &&= isMet;
      return isMet ? "met" : "NOT met";
    };
    const line = (what: string, figure: string) => print(`${what.padEnd(38)}${figure}`);

    const took: number[] = [];
    let chunks = 0;
    for (let sends = 0; sends < smallSends; sends += 1) {
      const few = await send(token, fakes, "/notifications", { audience: rarely, content }, devices / 1_000);
      took.push(few.seconds);
      chunks = await chunksOf(db, few.id);
    }
    line("One device in a thousand", `${chunks} chunks, the last message after ${median(took).toFixed(2)} s`);

    const rates: Record<"offsets" | "languages", number[]> = { offsets: [], languages: [] };
    const toAll = [
      ["offsets", "/push", byOffsets],
      ["languages", "/notifications", { audience: everybody, content }],
    ] as const;
    for (let round = 1; round <= rounds; round += 1) {
      for (const [kind, path, body] of toAll) {
        const before = push.processorSeconds() ?? Number.NaN;
        const { perSecond } = await send(token, fakes, path, body, devices);
        rates[kind].push(perSecond);
        const processor = ((push.processorSeconds() ?? Number.NaN) - before) / (devices / 1_000_000);
        line(
          `Round ${round}, ${kind}`,
          `${number(perSecond)} messages a second, ${processor.toFixed(1)} s of the process for a million`,
        );
      }
    }
    const share = median(rates.languages) / median(rates.offsets);
    line(
      "In languages",
      `${Math.round(share * 100)} % of that by offsets (aim 90 %): ${verdict(share >= 0.9)}`,
    );
    const memory = push.peakMemory() ?? Number.NaN;
    line("Peak memory of the process", `${memory.toFixed(0)} MiB (aim 384): ${verdict(memory <= 384)}`);

    for (const [what, audience] of Object.entries({
      "a filter": rarely,
      everybody,
      "all but 10,000 users": { ...everybody, exceptUsers },
    })) {
      const { p50, p99 } = await timePreviews(token, audience);
      line(
        `Preview of ${what}`,
        `p50 ${p50.toFixed(0)} ms, p99 ${p99.toFixed(0)} ms (aim 100): ${verdict(p99 <= 100)}`,
      );
    }
    return isAllMet;
  } finally {
    await push.stop();
    await auth.stop();
    await fakes.stop();
  }
}

const dataDir = mkdtempSync(join(tmpdir(), "gatepost-bench-"));
try {
  await inBenchDatabase((bench) => run(bench, dataDir));
} finally {
  rmSync(dataDir, { recursive: true, force: true });
}
