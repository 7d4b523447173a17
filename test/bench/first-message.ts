/**
 * `npm run bench:first`: the time from the response to a send to its first message at the provider, for a send to ten
 * devices, alone and while a send to a million goes on, or to all where there are fewer. One process with both services,
 * PostgreSQL and the FCM fake on loopback; the fake is in this process, which also sends.
 *
 *   BENCH_SIZES=10000,1000000   devices in the table; 5000000 takes minutes to fill
 *   BENCH_ROUNDS=40             sends that are timed in each row of the table
 *   BENCH_BEHIND=1000000        devices of the large send, about: those of as many offsets
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { createWorld, type World } from "../push/end-to-end/world.ts";
import { installPostgresql } from "../support/postgresql/binaries.ts";
import { postgresUrl, providePostgresql } from "../support/postgresql/server.ts";
import { emptyOffset as fewOffset, worldOffsets } from "../support/send-audience.ts";
import { percentiles } from "./percentiles.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

const sizes = (process.env["BENCH_SIZES"] ?? "10000,1000000").split(",").map(Number);
const rounds = Number(process.env["BENCH_ROUNDS"] ?? 40);
const behind = Number(process.env["BENCH_BEHIND"] ?? 1_000_000);
/** Devices of the send that is timed. */
const few = 10;
/** Milliseconds within which the first message is to be there. */
const aimMs = 1_000;

const print = (line: string) => process.stdout.write(`${line}\n`);
const number = (value: number) => Math.round(value).toLocaleString("en-US");

/** The calls of an operator. */
function operatorAt(base: string, token: string) {
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  async function call(method: string, path: string, body?: object): Promise<Response> {
    const response = await fetch(`${base}/v1/pushprovider${path}`, {
      method,
      headers,
      ...(body && { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response;
  }
  return {
    async send(utcOffsets: readonly number[]): Promise<string> {
      const response = await call("POST", "/push", {
        title: "Good morning",
        message: "It is nine.",
        utcOffsets,
      });
      return response.headers.get("notification-id") ?? "";
    },
    async isOver(id: string): Promise<boolean> {
      const progress: { completedAt: string | null } = JSON.parse(
        await (await call("GET", `/notifications/${id}`)).text(),
      );
      return progress.completedAt !== null;
    },
    cancel: (id: string) => call("POST", `/notifications/${id}/cancel`),
  };
}
type BenchOperator = ReturnType<typeof operatorAt>;

/** @returns milliseconds from the response to the first message */
async function timeOne({ fcm }: World, operator: BenchOperator): Promise<number> {
  const id = await operator.send([fewOffset]);
  const answeredAt = performance.now();
  const isThere = () =>
    Array.from({ length: few }, (_, index) => fcm.ledger.token(`few-${index + 1}`)).some((entry) =>
      entry?.messages.some(({ collapseId }) => collapseId === id),
    );
  while (!isThere()) {
    if (performance.now() - answeredAt > 60_000) throw new Error(`no message of ${id} within a minute`);
    await setTimeout(1);
  }
  return performance.now() - answeredAt;
}

/** @param offsets those of the send that goes on meanwhile; none: it is measured alone */
async function measure(world: World, operator: BenchOperator, offsets: readonly number[]): Promise<number[]> {
  const isBehind = offsets.length > 0;
  const took: number[] = [];
  let large: string | undefined;
  for (let round = 0; round < rounds; round += 1) {
    if (isBehind && (large === undefined || (await operator.isOver(large)))) {
      large = await operator.send(offsets);
      // It is being planned, and some of it is on its way.
      if (round === 0) await setTimeout(500);
    }
    took.push(await timeOne(world, operator));
    // At any moment of the other send, and of the looks at the queues.
    await setTimeout(Math.random() * 200);
  }
  if (large !== undefined) {
    if (!(await operator.isOver(large))) await operator.cancel(large);
    while (!(await operator.isOver(large))) await setTimeout(100);
  }
  return took;
}

async function measureSize(devices: number): Promise<boolean> {
  print(`Filling the table with ${number(devices)} devices`);
  const world = await createWorld("PostgreSQL", {
    env: { PUSH_MAX_PER_SECOND: "0" },
    audience: { devices, users: Math.ceil(devices * 0.4) },
  });
  try {
    await world.read((db) =>
      db.execute(sql`
        insert into push.devices
          (user_id, token, utc_offset, expires_at, provider, token_hash, registered_at, renewed_at)
        select 'few-' || n, 'few-' || n, ${fewOffset}::smallint, now() + interval '30 days', 'fcm',
          sha256(('few-' || n)::bytea), now() - interval '1 day', now() - interval '1 day'
        from generate_series(1, ${few}::int) n`),
    );
    const server = await world.start();
    const operator = operatorAt(server.base, await server.backofficeToken());
    await timeOne(world, operator);
    let isMet = true;
    const share = Math.min(1, behind / devices);
    const offsets = worldOffsets.slice(0, Math.ceil(worldOffsets.length * share));
    for (const large of [[], offsets]) {
      const { p50, p99 } = percentiles(await measure(world, operator, large));
      const reached = (devices * large.length) / worldOffsets.length;
      const what = large.length > 0 ? `behind a send to ${number(reached)}` : "alone";
      const verdict = p99 <= aimMs ? "met" : "NOT met";
      isMet &&= p99 <= aimMs;
      print(
        `${number(devices).padStart(9)} devices, ${what.padEnd(27)}  p50 ${number(p50).padStart(5)} ms   p99 ${number(p99).padStart(5)} ms (aim ${number(aimMs)}): ${verdict}`,
      );
    }
    return isMet;
  } finally {
    await world.end();
  }
}

const stopPostgresql = await providePostgresql({ durable: true });
if (!postgresUrl()) {
  print(`This measurement needs PostgreSQL. ${installPostgresql}`);
  process.exit(1);
}
try {
  let isMet = true;
  for (const devices of sizes) isMet = (await measureSize(devices)) && isMet;
  process.exitCode = isMet ? 0 : 1;
} finally {
  await stopPostgresql();
}
