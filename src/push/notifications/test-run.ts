/**
 * Test runs of sending. The operation needs no credentials: the text is fixed, the recipients are configured users, and
 * over all processes one runs at a time and at most one a minute begins.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { uuidv7 } from "../../platform/crypto/random.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { notifications, testRuns } from "../schema.ts";
import { newNotification, plainRequest } from "./accept-notification.ts";
import type { CountAccepted } from "./acceptance-metrics.ts";
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
  readonly wakeUps: PushWakeUps;
  readonly clock: Clock;
  readonly ttlSeconds: number;
  readonly testUserIds: readonly string[];
  readonly logger: Logger;
  readonly accepted?: CountAccepted | undefined;
}

/** Starts a run, unless the last one is still being sent or began less than a minute ago. */
export function createTestRuns(dependencies: Dependencies): () => Promise<void> {
  const { db, wakeUps, clock, ttlSeconds, testUserIds, logger, accepted } = dependencies;
  let current: Promise<void> | undefined;
  /** When this process last started a run: within a minute of it the database would refuse another. */
  let startedAt = Number.NEGATIVE_INFINITY;
  let hasWarned = false;

  async function start(): Promise<void> {
    const now = clock.now();
    const id = uuidv7(now);
    const request = plainRequest(content, { users: [...new Set(testUserIds)] });
    const run = newNotification({ id, now, kind: "TEST", clientId: null, request, ttlSeconds });
    if (!(await storeNotification(db, run, claimRun(id)))) return;
    accepted?.("TEST");
    wakeUps.wake("ranges");
    startedAt = now;
    logger.info({ notificationId: id }, "A test run was started");
  }

  return async () => {
    if (testUserIds.length === 0) {
      if (!hasWarned) logger.warn("Test runs have no recipients, as TEST_NOTIFICATION_USER_IDS is empty");
      hasWarned = true;
      return;
    }
    // Checked in memory first, so that a flood of requests does not reach the database.
    const elapsed = clock.now() - startedAt;
    if (elapsed >= 0 && elapsed < intervalMs) return;
    current ??= start().finally(() => {
      current = undefined;
    });
    await current;
  };
}

/**
 * A statement that returns a row if a run may start, by the database's clock, even after that was set back. A last run
 * that is paused or has expired does not prevent a new one.
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
