/**
 * The completion sweep: at an interval it does for notifications what was left undone, for example by a process that
 * died. It drops chunks that no worker can send any more, has chunks follow that did not, and completes notifications
 * that are finished.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { every, type Loop } from "../../platform/base/loop.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rows, selection } from "../../platform/database/sql/statements.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { type FollowJob, followQueue } from "../database.ts";
import { deliveryChunks, notifications, planRanges } from "../schema.ts";
import { abandonedAfter, completeIfDone, isOpen, nothingIsLeft } from "./complete-notification.ts";
import { dropChunks, isFullStep } from "./follow-chunks.ts";
import { lockNotification } from "./lock-notification.ts";

/** The most notifications that one round handles. */
const roundSize = 1_000;

const n = names(notifications, "n");
const c = names(deliveryChunks, "c");
const r = names(planRanges, "r");
const listed = selection({ id: n.id });

/** The ids of unfinished notifications `n`, at most as many as a round handles. */
async function unfinished(db: Database, condition: SQL): Promise<string[]> {
  const found = await rows(
    db,
    listed,
    sql`
      select ${listed} from ${notifications} n where ${n.completedAt} is null and ${condition} limit ${roundSize}::int`,
  );
  return found.map(({ id }) => id);
}

/**
 * Drops the open chunks of notifications that expired long ago. Such a chunk has no worker: its provider is no longer
 * in use, its job is lost, or its notification was paused and never resumed. Should a worker have it after all, that
 * worker can no longer write it, because the chunk's fence is raised.
 */
async function dropAbandoned(db: Database): Promise<void> {
  const abandoned = sql`${n.expiresAt} < now() - ${abandonedAfter}
    and exists (select from ${deliveryChunks} c where ${isOpen})`;
  for (const id of await unfinished(db, abandoned)) {
    const step = () =>
      db.transaction(async (tx) => {
        await lockNotification(tx, id);
        return dropChunks(tx, id, ["PENDING", "SENDING"]);
      });
    while (isFullStep(await step()));
  }
}

const waits = sql`${c.notificationId} = ${n.id} and ${c.state} = 'PENDING'`;

/** Condition on the notification `n`: it has chunks or ranges that have not followed it. */
const isLeftBehind = sql`
  ${n.state} = 'CANCELLED' and exists (select from ${deliveryChunks} c where ${waits})
  or ${n.state} in ('PLANNING', 'SENDING') and exists (
    select from ${deliveryChunks} c where ${waits} and ${c.jobId} is null)
  or ${n.state} = 'PLANNING' and exists (
    select from ${planRanges} r where ${r.notificationId} = ${n.id} and ${r.jobId} is null)`;

/** Enqueues the jobs by which chunks follow, where these were lost. A job too many does no harm. */
async function followLeftOver(db: Database, jobs: Pick<Jobs, "enqueue">): Promise<void> {
  const found = await unfinished(db, sql`(${isLeftBehind})`);
  const work = found.map((notificationId) => ({ data: { notificationId, released: 0 } satisfies FollowJob }));
  await db.transaction((tx) => jobs.enqueue(tx, followQueue, work));
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue">;
  readonly clock: Clock;
}

/** Completes finished notifications that were left over, for example by a process that died. @returns how many */
export async function sweepCompletions({ db, jobs, clock }: Dependencies): Promise<number> {
  await dropAbandoned(db);
  await followLeftOver(db, jobs);
  let completed = 0;
  for (const id of await unfinished(db, nothingIsLeft))
    if (await completeIfDone(db, id, clock)) completed += 1;
  return completed;
}

/** Sweeps at an interval until stopped. A round that fails is logged; the next one comes as usual. */
export function startCompletionSweep({
  logger,
  intervalSeconds = 30,
  ...dependencies
}: Dependencies & { readonly logger: Logger; readonly intervalSeconds?: number }): Loop {
  return every(
    intervalSeconds * 1000,
    () => sweepCompletions(dependencies),
    (err) => logger.warn({ err }, "Finished notifications could not be completed yet"),
  );
}
