/**
 * Replays many dead letters: in steps, by a cursor over their ids, from the lowest to the highest that there was at the
 * request. So each is replayed once, though it may be given up again meanwhile, and the request takes the same time for
 * any number of them. A replayed chunk waits without a job, as if it was parked, and follows its notification.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { confirmCommit } from "../../platform/database/confirm.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rows, selection } from "../../platform/database/sql/statements.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type FollowJob, followQueue, type ReplayJob, replayQueue } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";

const chunk = names(deliveryChunks);
const notification = names(notifications);
const c = names(deliveryChunks, "c");
const n = names(notifications, "n");

const letter = selection({ id: chunk.id, notificationId: chunk.notificationId, provider: chunk.provider });
const locked = selection({ id: notification.id });
const reopened = selection({ notificationId: chunk.notificationId });

/**
 * Turns dead letters into chunks that are to be sent, with all their tries, without a job, and after all that was not
 * tried; a notification that was completed goes on. A dead letter whose notification was cancelled, was recalled or has
 * expired stays one. The transaction has locked the notifications.
 * @param ids the ids of chunks; those that are not dead are left out
 * @returns the notifications of the chunks that are to be sent
 */
export async function reopenDeadLetters(
  tx: Database,
  ids: readonly number[],
  clock: Clock,
): Promise<string[]> {
  const now = sql`${new Date(clock.now()).toISOString()}::timestamptz`;
  const found = await rows(
    tx,
    reopened,
    sql`
      with reopened as (
        update ${deliveryChunks} c
        set ${chunk.state} = 'PENDING', ${chunk.jobId} = null, ${chunk.retries} = 0, ${chunk.firstAttemptAt} = null,
          ${chunk.reason} = null, ${chunk.isRetry} = true, ${chunk.updatedAt} = ${now}
        from ${notifications} n
        where ${c.id} = any(${arrayLiteral(ids)}::bigint[]) and ${c.state} = 'DEAD'
          and ${n.id} = ${c.notificationId} and ${n.state} <> 'CANCELLED' and ${n.recalledAt} is null
          and ${n.expiresAt} > ${now}
        returning ${c.notificationId}
      ), resumed as (
        update ${notifications} set ${notification.state} = 'SENDING', ${notification.completedAt} = null
        where ${notification.id} in (select ${chunk.notificationId} from reopened)
          and ${notification.state} = 'COMPLETED'
      )
      select distinct ${reopened} from reopened`,
  );
  return found.map(({ notificationId }) => notificationId);
}

/** The dead letters to replay: all, or those of a notification or provider. */
export interface DeadLetterFilter {
  readonly notificationId?: string | undefined;
  readonly provider?: ProviderName | undefined;
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Jobs;
  readonly clock: Clock;
  /** The most dead letters that one step looks at; 1,000 unless given. */
  readonly stepSize?: number;
}

/** Enqueues the job that replays the present dead letters. */
export async function enqueueReplay(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  { notificationId, provider }: DeadLetterFilter,
): Promise<void> {
  const [last] = await rows(
    tx,
    letter,
    sql`
      select ${letter} from ${deliveryChunks} where ${chunk.state} = 'DEAD' order by ${chunk.id} desc limit 1`,
  );
  if (!last) return confirmCommit(tx);
  const data: ReplayJob = {
    after: 0,
    through: last.id,
    ...(notificationId !== undefined && { notificationId }),
    ...(provider !== undefined && { provider }),
  };
  await jobs.enqueue(tx, replayQueue, [{ data }]);
}

/** Does one step, in the caller's transaction: replays the next dead letters, and enqueues a job for the rest. */
async function replayNext(
  tx: Database,
  { jobs, clock, stepSize = 1_000 }: Omit<Dependencies, "db">,
  work: ReplayJob,
): Promise<void> {
  const next = await rows(
    tx,
    letter,
    sql`
      select ${letter} from ${deliveryChunks}
      where ${chunk.state} = 'DEAD' and ${chunk.id} > ${work.after}::bigint and ${chunk.id} <= ${work.through}::bigint
      order by ${chunk.id} limit ${stepSize}`,
  );
  const wanted = next.filter(
    ({ notificationId, provider }) =>
      (work.notificationId ?? notificationId) === notificationId && (work.provider ?? provider) === provider,
  );
  const ofThem = arrayLiteral([...new Set(wanted.map(({ notificationId }) => notificationId))]);
  // Notifications are locked in the order of their ids, so that no two steps wait for each other.
  await rows(
    tx,
    locked,
    sql`
      select ${locked} from ${notifications} where ${notification.id} = any(${ofThem}::uuid[])
      order by ${notification.id} for update`,
  );
  const reopened = await reopenDeadLetters(
    tx,
    wanted.map(({ id }) => id),
    clock,
  );
  const follow = reopened.map((notificationId) => ({
    data: { notificationId, released: 0 } satisfies FollowJob,
  }));
  await jobs.enqueue(tx, followQueue, follow);
  const last = next.at(-1);
  if (!last || next.length < stepSize) return;
  const data: ReplayJob = { ...work, after: last.id };
  await jobs.enqueue(tx, replayQueue, [{ data }]);
}

/** @returns the handler of the jobs of the queue `replay` */
export function createReplayer({ db, ...others }: Dependencies) {
  const { jobs } = others;
  return async (job: Job<ReplayJob>): Promise<void> => {
    await db.transaction(async (tx) => {
      await replayNext(tx, others, job.data);
      await jobs.complete(tx, replayQueue, job);
    });
    for (const queue of [replayQueue, followQueue]) jobs.wake(queue);
  };
}
