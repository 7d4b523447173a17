/**
 * Measures how fast one process delivers: `node test/push/delivery/throughput.ts [devices]`, 200,000 unless
 * given. PostgreSQL, an FCM fake and the worker are processes of their own.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import { uuidv7 } from "../../../src/platform/crypto/uuid.ts";
import { createJobs } from "../../../src/platform/messaging/jobs.ts";
import { createLogger } from "../../../src/platform/observability/logger.ts";
import { startFlags } from "../../../src/platform/process/v8-flags.ts";
import { deliveryQueue, pushJobTables, pushMigrations } from "../../../src/push/database.ts";
import { rows } from "../../support/rows.ts";
import { createServiceDatabase } from "../../support/service-database.ts";
import type { WorkerArgument } from "./worker-program.ts";

const devices = Number(process.argv[2] ?? 200_000);
const print = (text: string) => void process.stdout.write(`${text}\n`);

function start(name: string, ...args: string[]) {
  const path = fileURLToPath(new URL(name, import.meta.url));
  const child = spawn(process.execPath, [...startFlags, path, ...args], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const line = async () => String((await lines.next()).value);
  return { child, line };
}

const service = await createServiceDatabase("PostgreSQL", pushMigrations);
const opened = await service.open();
await opened.migrate();
const { db } = opened;
const jobs = createJobs({
  database: opened,
  tables: pushJobTables,
  logger: createLogger({ level: "warn", environment: "production" }),
});
await jobs.start();

const notificationId = uuidv7(Date.now());
for (let first = 0; first < devices; first += 20_000) {
  await db.execute(sql`
    insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
    select 'user-' || n, 'fcm', 'device-' || n || '-' || repeat(md5(n::text), 4), sha256(n::text::bytea), 0,
      now() + interval '1 day', now(), now()
    from generate_series(${first + 1}::int, ${Math.min(first + 20_000, devices)}::int) n`);
}
await db.execute(sql`
  insert into push.notifications (id, title, message, utc_offsets, client_id, state, accepted_at, expires_at,
    planned_at, recipients, chunks)
  values (${notificationId}::uuid, 'Title', 'Message', '{0}', 'backoffice', 'SENDING', now(), now() + interval '1 day',
    now(), ${devices}::int, ${Math.ceil(devices / 1000)}::int)`);
const chunks = await rows<{ id: string; jobId: string }>(
  db,
  sql`
    insert into push.delivery_chunks (notification_id, provider, utc_offset, state, device_ids, planned, sent, failed,
      dropped, dead, attempt, retries, job_id, updated_at)
    select ${notificationId}::uuid, 'fcm', 0, 'PENDING', array_agg(id order by id), count(*), 0, 0, 0, 0, 0, 0,
      gen_random_uuid(), now()
    from push.devices group by (id - 1) / 1000 returning id::text, job_id::text as "jobId"`,
);
await db.transaction((tx) =>
  jobs.enqueue(
    tx,
    deliveryQueue("fcm"),
    chunks.map(({ id, jobId }) => ({ id: jobId, data: { chunkId: Number(id) } })),
  ),
);
await db.execute(sql`analyze push.devices, push.delivery_chunks, push_jobs.job`).catch(() => undefined);
await jobs.stop();
print(`${devices} devices in ${chunks.length} chunks`);

const fake = start("fcm-fake-program.ts");
const { origin, credentials } = JSON.parse(await fake.line());
const argument: WorkerArgument = {
  database: service.settings,
  fcm: {
    endpoint: origin,
    account: {
      projectId: credentials.project_id,
      privateKeyId: credentials.private_key_id,
      privateKey: credentials.private_key,
      clientEmail: credentials.client_email,
      tokenUri: credentials.token_uri,
    },
  },
  maxPerSecond: Number(process.argv[3] ?? 0),
};
const worker = start("worker-program.ts", JSON.stringify(argument));
await worker.line();
const summary = async () => {
  fake.child.stdin.write("\n");
  return JSON.parse(await fake.line());
};
for (;;) {
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  if ((await summary()).tokens === devices) break;
}
const { messages, repeats, peakPerSecond, firstAt, lastAt, cpuSeconds } = await summary();
const seconds = (lastAt - firstAt) / 1000;
print(
  `sent ${messages} (${repeats} repeats) in ${seconds.toFixed(1)} s: ${Math.round(messages / seconds)} a second, peak ${peakPerSecond}`,
);
print(`fake: ${cpuSeconds.toFixed(1)} s of processor`);
worker.child.kill("SIGTERM");
print(`worker: ${await worker.line()}`);
const [sum] = await rows(
  db,
  sql`select sum(sent)::int as sent, count(*) filter (where state = 'DONE')::int as done, max(attempt) as attempts
      from push.delivery_chunks`,
);
print(JSON.stringify(sum));
fake.child.stdin.end();
await once(fake.child, "exit");
await service.drop();
