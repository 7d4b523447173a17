/**
 * Test runs of sending. Whoever can reach the service can ask for one, so it must be harmless: what it says is
 * fixed, it goes to configured users only, one at a time, and at most one a minute in the whole fleet.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { uuidv7 } from "../../platform/crypto/uuid.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { notifications, testRuns } from "../schema.ts";
import { storeNotification } from "./store-notification.ts";

const content = {
  title: "Test notification",
  message: "This is a test of notification sending.",
  image: null,
};

/** Milliseconds from the start of one run to the next. */
const intervalMs = 60_000;

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue">;
  readonly clock: Clock;
  readonly ttlSeconds: number;
  readonly testUserIds: readonly string[];
  readonly logger: Logger;
}

/** Starts a run, unless the last one is still going out or began less than a minute ago. */
export function createTestRuns(dependencies: Dependencies): () => Promise<void> {
  const { db, jobs, clock, ttlSeconds, testUserIds, logger } = dependencies;
  let current: Promise<void> | undefined;
  /** When this process last started one: within the minute the database would say no. */
  let startedAt = Number.NEGATIVE_INFINITY;
  let hasSaidSo = false;

  async function start(): Promise<void> {
    const now = clock.now();
    const id = uuidv7(now);
    const audience = { userIds: testUserIds };
    const times = { acceptedAt: new Date(now), expiresAt: new Date(now + ttlSeconds * 1000) };
    const run = { id, ...content, audience, clientId: null, ...times };
    const isStarted = await db.transaction((tx) => storeNotification(tx, jobs, run, claimRun(id)));
    if (!isStarted) return;
    startedAt = now;
    logger.info({ notificationId: id }, "a test run was started");
  }

  return async () => {
    if (testUserIds.length === 0) {
      if (!hasSaidSo) logger.warn("test runs have no recipients: TEST_NOTIFICATION_USER_IDS is empty");
      hasSaidSo = true;
      return;
    }
    // What this process knows spares the database a flood.
    const elapsed = clock.now() - startedAt;
    if (elapsed >= 0 && elapsed < intervalMs) return;
    current ??= start().finally(() => {
      current = undefined;
    });
    await current;
  };
}

/**
 * Returns a row if a run may start. Who asks at the same time waits, and then finds it started. A run that is paused,
 * or too late to be sent, holds up nobody. Times are the database's: whatever clock a process has, and though that
 * of the database was set back.
 */
function claimRun(id: string): SQL {
  const run = names(testRuns);
  const excluded = names(testRuns, "excluded");
  const last = names(testRuns, "last");
  const n = names(notifications, "n");
  return sql`
    insert into ${testRuns} as last (${run.id}, ${run.notificationId}, ${run.startedAt}) values (1, ${id}::uuid, now())
    on conflict (${run.id}) do update
    set ${run.notificationId} = ${excluded.notificationId}, ${run.startedAt} = ${excluded.startedAt}
    where abs(extract(epoch from now() - ${last.startedAt})) >= ${intervalMs / 1000}::float8 and not exists (
      select from ${notifications} n
      where ${n.id} = ${last.notificationId} and ${n.completedAt} is null and ${n.state} <> 'PAUSED'
        and ${n.expiresAt} > now())
    returning 1 as one`;
}
