/**
 * How chunks follow their notification. The state of the notification alone decides whether they are sent, from its
 * commit on. The chunks, however many they are, are written afterwards, in steps of a bounded number: after a resume,
 * parked chunks and ranges get a job again; after a cancel, chunks are dropped.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, isAmong, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type FollowJob, followQueue } from "../database.ts";
import { providerNames } from "../provider-settings.ts";
import { deliveryChunks } from "../schema.ts";
import { enqueueChunks, wakeWorkers } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { type LockedNotification, lockNotification } from "./lock-notification.ts";
import { releaseRanges } from "./plan-ranges.ts";

/** The most chunks that one step writes. */
const stepSize = 1_000;

const chunk = names(deliveryChunks);

/** Drops chunks, and keeps a worker that may have one from writing it. @returns how many; fewer than a step if all */
export function dropChunks(
  tx: Database,
  notificationId: string,
  states: readonly ("PENDING" | "SENDING")[],
): Promise<number> {
  return rowCount(
    tx,
    sql`
      with chosen as (
        select ${chunk.id} as chosen_id from ${deliveryChunks}
        where ${chunk.notificationId} = ${notificationId}::uuid and ${chunk.state} = any(${arrayLiteral(states)}::text[])
          and ${chunk.state} in ('PENDING', 'SENDING')
        limit ${stepSize} for update
      )
      update ${deliveryChunks}
      set ${chunk.state} = 'DONE', ${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}),
        ${chunk.deviceIds} = '{}', ${chunk.jobId} = null, ${chunk.fence} = ${chunk.fence} + 1,
        ${chunk.updatedAt} = now()
      where ${isAmong(chunk.id, sql`select chosen_id from chosen`)}
      returning 1 as one`,
  );
}

/** Whether a step of so many chunks may have left some. */
export const isFullStep = (count: number): boolean => count >= stepSize;

const released = selection({
  id: chunk.id,
  provider: computed(oneOf(providerNames), chunk.provider),
  jobId: computed(text, sql`${chunk.jobId}::text`),
  isRetry: chunk.isRetry,
});

/** Gives the next parked chunks a job, in the order in which they were planned. @returns how many */
async function releaseChunks(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  { notificationId, released: first }: FollowJob,
  isTest: boolean,
): Promise<number> {
  const chunks = await rows(
    tx,
    released,
    sql`
      with chosen as (
        select ${chunk.id} as chosen_id from ${deliveryChunks}
        where ${chunk.notificationId} = ${notificationId}::uuid and ${chunk.state} = 'PENDING' and ${chunk.jobId} is null
        order by ${chunk.id} limit ${stepSize} for update
      )
      update ${deliveryChunks} set ${chunk.jobId} = gen_random_uuid(), ${chunk.updatedAt} = now()
      where ${isAmong(chunk.id, sql`select chosen_id from chosen`)}
      returning ${released}`,
  );
  const inOrder = chunks.toSorted((a, b) => a.id - b.id);
  await enqueueChunks(tx, jobs, inOrder, { first, isTest });
  return chunks.length;
}

/**
 * Does one step, in the caller's transaction: the first chunks follow, and a job for the others is enqueued.
 * @param notification the notification as this transaction has locked it
 */
export async function followNotification(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  { state, isTest }: Pick<LockedNotification, "state" | "isTest">,
  work: FollowJob,
): Promise<void> {
  let count = 0;
  if (state === "CANCELLED") count = await dropChunks(tx, work.notificationId, ["PENDING"]);
  if (state === "PLANNING") await releaseRanges(tx, jobs, work.notificationId, isTest);
  if (state === "PLANNING" || state === "SENDING") count = await releaseChunks(tx, jobs, work, isTest);
  if (!isFullStep(count)) return;
  const data: FollowJob = { ...work, released: work.released + count };
  await jobs.enqueue(tx, followQueue, [{ data }]);
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Jobs;
  readonly clock: Clock;
}

/** @returns the handler of the jobs of the queue `follow` */
export function createFollower({ db, jobs, clock }: Dependencies) {
  return async (job: Job<FollowJob>): Promise<void> => {
    const { notificationId } = job.data;
    await db.transaction(async (tx) => {
      const notification = await lockNotification(tx, notificationId);
      if (notification) await followNotification(tx, jobs, notification, job.data);
      await jobs.complete(tx, followQueue, job);
    });
    wakeWorkers(jobs);
    // If this fails, the completion sweep does it.
    await completeIfDone(db, notificationId, clock).catch(() => undefined);
  };
}
