/** One run of `npm run bench:delivery`: planned chunks, worker processes, and what the provider's ledger says. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import type { Scenario } from "../../src/development/provider-fakes/scenario.ts";
import { uuidv7 } from "../../src/platform/crypto/random.ts";
import type { Database, OpenDatabase } from "../../src/platform/database/database.ts";
import type { DatabaseSettings } from "../../src/platform/database/settings.ts";
import { startFlags } from "../../src/platform/process/v8-flags.ts";
import type { FcmSettings } from "../../src/push/provider-settings.ts";
import type { WorkerArgument } from "../push/delivery/worker-program.ts";
import { rows } from "../support/rows.ts";
import type { Fakes } from "./send-world.ts";

/** What goes wrong in a run. */
export interface Trouble {
  readonly name: string;
  /** Played from the beginning. */
  readonly scenario?: Scenario;
  /** Played once half of the devices have their message. */
  readonly inTheMiddle?: Scenario;
}

export interface RunFigures {
  /** Until 99 % of the messages that the provider accepts in the end were accepted. */
  readonly perSecond: number;
  /** Seconds from the first accepted message to the last. */
  readonly lastAfter: number;
  /** Seconds from the end of what was played in the middle to the last; undefined: nothing was. */
  readonly lastAfterTrouble: number | undefined;
  readonly repeats: number;
  /** Devices whose message the provider refused for good. */
  readonly failed: number;
  /** Devices that have neither got a message nor been refused. */
  readonly lost: number;
  /** Processor seconds of the workers. */
  readonly cpuSeconds: number;
}

interface Bench {
  readonly database: OpenDatabase;
  readonly settings: DatabaseSettings;
  readonly fakes: Fakes;
  readonly devices: number;
}

/** Devices of a chunk, as planning makes them. */
const chunkSize = 1_000;
const program = fileURLToPath(new URL("../push/delivery/worker-program.ts", import.meta.url));

/** Plans a notification to all devices, and has so many processes send it. @throws if it does not end within an hour */
export async function run(
  bench: Bench,
  processes: number,
  { scenario, inTheMiddle }: Trouble,
): Promise<RunFigures> {
  const { database, fakes, devices } = bench;
  await fakes.clear();
  if (scenario) await fakes.play(scenario);
  await plan(database, devices);
  const workers = await Promise.all(Array.from({ length: processes }, () => startWorker(bench)));
  try {
    const { curve, troubledUntil } = await watch(bench, inTheMiddle);
    const cpuSeconds = (await Promise.all(workers.splice(0).map(stopWorker))).reduce((sum, one) => sum + one);
    const { tokens, repeats, firstAt, lastAt } = await fakes.summary();
    const { failed } = await countsOf(database.db);
    const most = curve.find(({ accepted }) => accepted >= tokens * 0.99);
    const begin = firstAt ?? 0;
    return {
      perSecond: most === undefined ? 0 : (most.accepted / (most.at - begin)) * 1000,
      lastAfter: ((lastAt ?? begin) - begin) / 1000,
      lastAfterTrouble: troubledUntil && ((lastAt ?? begin) - troubledUntil) / 1000,
      repeats,
      failed,
      lost: devices - tokens - failed,
      cpuSeconds,
    };
  } finally {
    for (const { child } of workers) child.kill("SIGKILL");
  }
}

async function plan({ db }: OpenDatabase, devices: number): Promise<void> {
  for (const table of [
    "notifications",
    "delivery_chunks",
    "provider_states",
    "dead_reports",
    "provider_responses",
  ]) {
    await db.execute(sql`delete from push.${sql.identifier(table)}`);
  }
  const id = uuidv7(Date.now());
  await db.execute(sql`
    insert into push.notifications (id, title, message, utc_offsets, client_id, state, accepted_at, expires_at,
      planned_at, recipients, chunks)
    values (${id}::uuid, 'Good morning', 'The shop opens at nine.', '{0}', 'bench', 'SENDING', now(),
      now() + interval '1 day', now(), ${devices}::int, ${Math.ceil(devices / chunkSize)}::int)`);
  await db.execute(sql`
    insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, device_ids, planned)
    select ${id}::uuid, 'fcm', 0, 1000 + id / ${chunkSize}::int, array_agg(id order by id), count(*)
    from push.devices where token like 'device-%' group by 4 order by 4`);
}

interface Worker {
  readonly child: ChildProcess;
  /** The line that it prints at its end. */
  readonly last: Promise<string>;
}

async function startWorker({ settings, fakes: { env } }: Bench): Promise<Worker> {
  const account = JSON.parse(readFileSync(env["FCM_CREDENTIALS_FILE"] ?? "", "utf8"));
  const fcm: FcmSettings = {
    endpoint: env["FCM_ENDPOINT"] ?? "",
    account: {
      projectId: account.project_id,
      privateKeyId: account.private_key_id,
      privateKey: account.private_key,
      clientEmail: account.client_email,
      tokenUri: account.token_uri,
    },
  };
  const argument: WorkerArgument = { database: settings, fcm, maxPerSecond: 0 };
  const child = spawn(process.execPath, [...startFlags, program, JSON.stringify(argument)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  await once(child.stdout, "data");
  return { child, last: once(child, "exit").then(() => output.trim().split("\n").at(-1) ?? "") };
}

/** @returns its processor seconds */
async function stopWorker({ child, last }: Worker): Promise<number> {
  child.kill("SIGTERM");
  const { cpuSeconds }: { cpuSeconds: number } = JSON.parse(await last);
  return cpuSeconds;
}

interface Point {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly accepted: number;
}

/** What was seen of a run. */
interface Watched {
  readonly curve: readonly Point[];
  /** When what was played in the middle was over, in milliseconds since the epoch; undefined: nothing was. */
  readonly troubledUntil: number | undefined;
}

/** Looks at the ledger until nothing is left to be sent. */
async function watch({ database, fakes, devices }: Bench, inTheMiddle?: Scenario): Promise<Watched> {
  const curve: Point[] = [];
  let troubledUntil: number | undefined;
  for (const until = performance.now() + 3_600_000; performance.now() < until; await setTimeout(100)) {
    const { tokens: accepted } = await fakes.summary();
    curve.push({ at: Date.now(), accepted });
    if (inTheMiddle && troubledUntil === undefined && accepted * 2 >= devices) {
      await fakes.play(inTheMiddle);
      troubledUntil = Date.now() + (inTheMiddle.seconds ?? 0) * 1_000;
    }
    // The database is asked less often than the ledger, and only when the end is near.
    const isNear = accepted >= devices * 0.98 && curve.length % 10 === 0;
    if (accepted >= devices || (isNear && (await countsOf(database.db)).open === 0))
      return { curve, troubledUntil };
  }
  throw new Error("the send has not ended within an hour");
}

async function countsOf(db: Database): Promise<{ failed: number; open: number }> {
  const [counted] = await rows<{ failed: number; open: number }>(
    db,
    sql`
      select sum(failed)::int as failed, count(*) filter (where state in ('READY', 'WAITING', 'TAKEN'))::int as open
      from push.delivery_chunks`,
  );
  return counted ?? { failed: 0, open: 0 };
}
