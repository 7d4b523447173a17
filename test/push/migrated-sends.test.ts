/** Sends that an older version has begun: the migrations leave nobody out, and send nothing twice. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { openDatabase } from "../../src/platform/database/open.ts";
import { createJobs } from "../../src/platform/messaging/jobs.ts";
import {
  deliveryQueue,
  type FollowJob,
  followQueue,
  type PlanJob,
  planQueue,
  pushJobTables,
  pushMigrations,
} from "../../src/push/database.ts";
import { sweepCompletions } from "../../src/push/notifications/completion-sweep.ts";
import { createFollower } from "../../src/push/notifications/follow-chunks.ts";
import { createPlanner } from "../../src/push/notifications/plan-notification.ts";
import { captureLog } from "../support/captured-log.ts";
import { copyEmptyEmbeddedDatabase } from "../support/embedded-template.ts";
import { historyEntries } from "../support/history-rows.ts";
import { movableClock } from "../support/movable-clock.ts";
import { olderMigrations } from "../support/older-migrations.ts";
import { rows } from "../support/rows.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const cleanup = suiteCleanup();

const ids = ["planning", "sending", "paused"].map(
  (_, index) => `019a9f00-0000-7000-8000-00000000000${index}`,
);
const [planning = "", sending = "", paused = ""] = ids;

test("half-planned, half-sent and held notifications go on where they were", async () => {
  const dataDir = mkdtempSync(join(tmpdir(), "gatepost-migrated-"));
  cleanup.defer(() => rmSync(dataDir, { recursive: true }));
  const log = captureLog();
  const settings = { kind: "embedded", dataDir: join(dataDir, "push") } as const;
  await copyEmptyEmbeddedDatabase(settings.dataDir);
  const older = await openDatabase(settings, olderMigrations(pushMigrations, 2));
  await older.migrate();
  await older.db.execute(sql`
    insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
    select 'user-' || n, 'outbox', n::text, sha256(n::text::bytea), 0, now() + interval '1 day', now(), now()
    from generate_series(1, 10) n`);
  const notification = (id: string, state: string, through: number) =>
    older.db.execute(sql`
      insert into push.notifications (id, title, message, utc_offsets, client_id, state, accepted_at, expires_at,
        recorded_at, planned_through, plan_until, chunks, planned_at, recipients)
      values (${id}::uuid, 't', 'm', '{0}', 'backoffice', ${state}, now(), now() + interval '1 hour', now(),
        ${through}::bigint, 8, 1, case when ${through}::bigint = 8 then now() end, 8)`);
  const chunk = (id: string, state: string, devices: string) =>
    older.db.execute(sql`
      insert into push.delivery_chunks (notification_id, provider, utc_offset, state, device_ids, planned, sent, failed,
        dropped, dead, attempt, retries, updated_at)
      select ${id}::uuid, 'outbox', 0, ${state}, d, cardinality(d), 0, 0, 0, 0, 2, 0, now()
      from (select ${devices}::bigint[] as d) as made`);
  await notification(planning, "PLANNING", 5);
  await chunk(planning, "SENDING", "{1,2,3,4,5}");
  await older.db.execute(sql`
    insert into push.history select 'user-' || n, ${planning}::uuid, false from generate_series(1, 8) n`);
  await notification(sending, "SENDING", 8);
  await chunk(sending, "PENDING", "{1,2,3,4,5,6,7,8}");
  await notification(paused, "PAUSED", 8);
  await chunk(paused, "HELD", "{1,2,3,4,5,6,7,8}");
  await older.close();

  const { db, ...database } = await openDatabase(settings, pushMigrations);
  cleanup.defer(() => database.close());
  await database.migrate();
  const clock = movableClock();
  const jobs = createJobs({ database: { db, ...database }, tables: pushJobTables, logger: log.logger });
  await jobs.start();
  cleanup.defer(() => jobs.stop());
  const common = { db, jobs, clock };
  await sweepCompletions(common);
  const planner = createPlanner({ ...common, providers: ["outbox"] });
  const workers = [
    jobs.work<FollowJob>({ queue: followQueue, handle: createFollower(common), idleMs: 10 }),
    jobs.work<PlanJob>({ queue: planQueue, handle: planner.handle, idleMs: 10 }),
  ];
  const state = async (id: string) =>
    (await rows<{ state: string }>(db, sql`select state from push.notifications where id = ${id}::uuid`))[0]
      ?.state;
  await expect.poll(() => state(planning)).toBe("SENDING");
  const chunks = () =>
    rows(
      db,
      sql`
        select c.notification_id::text as id, c.state, array_to_string(device_ids, ',') as devices, attempt,
          j.id is not null as "hasJob"
        from push.delivery_chunks c
          left join push_jobs.job j on j.id = c.job_id and j.name = ${deliveryQueue("outbox")} order by c.id`,
    );
  const expected = { state: "PENDING", attempt: 2, hasJob: true };
  await expect.poll(chunks).toEqual([
    { ...expected, id: planning, devices: "1,2,3,4,5", attempt: 3 },
    { ...expected, id: sending, devices: "1,2,3,4,5,6,7,8" },
    { ...expected, id: paused, devices: "1,2,3,4,5,6,7,8", attempt: 3, hasJob: false },
    { ...expected, id: planning, devices: "6,7,8", attempt: 0 },
  ]);
  for (const worker of workers) await worker.stop();
  const [found] = await rows(
    db,
    sql`select recipients, (select count(*)::int from ${historyEntries}) as entries from push.notifications
        where id = ${planning}::uuid`,
  );
  expect(found).toEqual({ recipients: 8, entries: 8 });
});
