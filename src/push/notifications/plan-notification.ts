/**
 * Planning: the recipients of a notification are found range by range of device ids. A step plans one range in a short
 * transaction; its chunks are sent while the next ranges are planned. The guarantees:
 *
 * 1. A device is planned once, even if it changes meanwhile, a process dies, or several processes plan at once. If it
 *    changes its user it counts as another device: what was planned for the former user is not sent to it.
 * 2. A user gets one history entry for any number of devices, no later than the first message, and none after the user
 *    was deleted.
 * 3. Planning ends: devices that are registered after it began are not visited.
 * 4. Notifications take turns, range by range, so that one to few users does not wait for one to millions.
 */
import { setImmediate } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type PlanJob, planRestQueue } from "../database.ts";
import { recipientsOf } from "../history/history-blocks.ts";
import { planLock } from "../plan-lock.ts";
import type { ProviderName } from "../provider-settings.ts";
import { notifications, planRanges } from "../schema.ts";
import { enqueueChunks, wakeWorkers } from "./chunk-jobs.ts";
import { completeIfDone } from "./complete-notification.ts";
import { lockNotification } from "./lock-notification.ts";
import { createPlaces, type PlaceAt, type Places, placesAt } from "./places.ts";
import { type Planned, planRange } from "./plan-range.ts";
import {
  endOfStep,
  ignorePageCosts,
  isDense,
  lockRange,
  type PlanRange,
  reassignRange,
  removeRange,
  splitRange,
  takeRange,
} from "./plan-ranges.ts";

/** The most devices of the first step: few, so that the first message goes out at once. */
const firstStep = 1_000;
/** The most devices of the other steps: few enough that others hardly notice that they wait for the step. */
const defaultWindow = 16_000;

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue" | "complete" | "wake">;
  readonly clock: Clock;
  /** The providers in use; devices of other providers are not planned. */
  readonly providers: readonly ProviderName[];
  /** The most devices that one step plans. */
  readonly window?: number;
  /** Called once for a notification that has ended because no live device was found for it. */
  readonly foundNobody?: (notificationId: string) => void;
}

interface Planner {
  /**
   * Handles the jobs of the queues `plan` and `plan-rest`: plans the job's range, or the first step of it, and leaves
   * the rest to another job.
   */
  handle(job: Job<PlanJob>): Promise<void>;
}

/**
 * The step cannot be committed: the notification is not being planned any more, or a device has come to a new place.
 */
class StepUndoneError extends Error {
  override readonly name = "StepUndoneError";
}

export function createPlanner(dependencies: Dependencies): Planner {
  const { db, jobs, clock, providers, window = defaultWindow, foundNobody } = dependencies;
  const placesOf = createPlaces();

  /** @returns whether the job has ended; if not, its range was split or its step undone, and the next step goes on */
  async function step(job: Job<PlanJob>): Promise<boolean> {
    const outcome = await db
      .transaction(async (tx) => {
        const range = await takeRange(tx, job);
        if (!range) return "stopped";
        const places = await placesOf(tx, range.acceptedAt);
        const size = range.turn === 0 ? Math.min(firstStep, window) : window;
        const at = range.utcOffsets && placesAt(places, range.utcOffsets);
        const end = at ? await endOfStep(tx, range, at, size) : undefined;
        if (end !== undefined) {
          await splitRange(tx, jobs, range, end);
          return "split";
        }
        // No user is deleted during a step. The lock must be acquired before the next statement takes its snapshot.
        await planLock.shared(tx);
        const now = new Date(clock.now());
        const { chunks, isOutdated } = await planDevices(tx, range, places, at, size, now);
        const first = isOutdated ? undefined : await addChunks(tx, range, chunks.length);
        if (first === undefined) throw new StepUndoneError();
        await enqueueChunks(tx, jobs, chunks, { first, isTest: range.isTest });
        await endStep(tx, range, now, countsAfter(first, chunks.length));
        await removeRange(tx, job);
        await jobs.complete(tx, job.queue, job);
        return "planned";
      })
      .catch((err: unknown) => {
        if (err instanceof StepUndoneError) return "stopped";
        throw err;
      });
    if (outcome === "stopped") return giveBack(job);
    if (outcome === "split") jobs.wake(planRestQueue);
    else wakeWorkers(jobs);
    return outcome === "planned";
  }

  /**
   * Plans the range, whose devices are read in whichever way is faster.
   * @param at the places of its devices; null in a test run
   * @param size the most devices of a step
   */
  function planDevices(
    tx: Database,
    range: PlanRange,
    places: Places,
    at: readonly PlaceAt[] | null,
    size: number,
    now: Date,
  ): Promise<Planned> {
    if (!at) return planRange(tx, range, places, { providers, at: now });
    return ignorePageCosts(tx, async () => {
      const dense = await isDense(tx, range, at, size);
      return planRange(tx, range, places, { providers, at: now, isDense: dense });
    });
  }

  /** Ends a job whose range cannot be planned now. @returns whether it has ended: if not, the range is to be planned */
  function giveBack(job: Job<PlanJob>): Promise<boolean> {
    return db.transaction(async (tx) => {
      const hasRange = await lockRange(tx, job);
      const notification = await lockNotification(tx, job.data.notificationId);
      if (notification?.state === "PLANNING" && hasRange) return false;
      // Resuming gives it a job again.
      if (notification?.state === "PAUSED") await reassignRange(tx, job, null);
      else await removeRange(tx, job);
      if (notification && !notification.isRecalled) await countRecipients(tx, job.data.notificationId);
      await jobs.complete(tx, job.queue, job);
      return true;
    });
  }

  return {
    async handle(job) {
      // On the embedded database a step blocks the event loop; this lets other work run in between.
      while (!(await step(job))) await setImmediate();
      const { notificationId } = job.data;
      // If this fails, the completion sweep does it.
      const isCompleted = await completeIfDone(db, notificationId, clock).catch(() => false);
      if (isCompleted && (await isForNobody(db, notificationId))) foundNobody?.(notificationId);
    },
  };
}

const notification = names(notifications);
const range = names(planRanges);
const counted = selection({ chunks: notification.chunks });

/**
 * Adds the chunks of a step to the notification's, and locks it until the end of the transaction.
 * @returns how many chunks it had before; undefined if it is not being planned any more
 */
async function addChunks(
  tx: Database,
  { notificationId }: PlanRange,
  chunks: number,
): Promise<number | undefined> {
  const [found] = await rows(
    tx,
    counted,
    sql`
      update ${notifications} set ${notification.chunks} = ${notification.chunks} + ${chunks}::int
      where ${notification.id} = ${notificationId}::uuid and ${notification.state} = 'PLANNING'
      returning ${counted}`,
  );
  return found && found.chunks - chunks;
}

function isForNobody(db: Database, notificationId: string): Promise<boolean> {
  const { id, state, recipients, chunks } = notification;
  const found = sql`${id} = ${notificationId}::uuid and ${state} = 'COMPLETED'`;
  const one = sql`select 1 from ${notifications} where ${found} and ${recipients} = 0 and ${chunks} = 0`;
  return rowCount(db, one).then((count) => count > 0);
}

/** The factor by which a notification's chunks grow between two counts of its recipients. */
const growth = 1.1;

/**
 * Whether the recipients are counted after a step. They are summed over all that was planned, so a large notification
 * counts them only now and then, which takes no longer in all than a few such sums.
 * @param before how many chunks the notification had before the step that added some
 */
export function countsAfter(before: number, added: number): boolean {
  const stage = (chunks: number) => Math.floor(Math.log(chunks) / Math.log(growth));
  return stage(before + added) > stage(before);
}

/**
 * Ends planning if no other range is left, and counts the recipients then, or when it is time to. The notification is
 * locked by now: of two steps that end at once, the second one sees what the first has written and removed.
 */
async function endStep(
  tx: Database,
  { notificationId, after }: PlanRange,
  at: Date,
  counts: boolean,
): Promise<void> {
  const id = sql`${notificationId}::uuid`;
  const isLast = sql`not exists (
    select from ${planRanges} where ${range.notificationId} = ${id} and ${range.after} <> ${after}::bigint)`;
  await tx.execute(sql`
    update ${notifications}
    set ${notification.recipients} = case when is_last or ${counts}::boolean then ${recipientsOf(id)}
        else ${notification.recipients} end,
      ${notification.state} = case when is_last then 'SENDING' else ${notification.state} end,
      ${notification.plannedAt} = case when is_last then ${at.toISOString()}::timestamptz end
    from (select ${isLast} as is_last) as rest
    where ${notification.id} = ${id}`);
}

async function countRecipients(tx: Database, notificationId: string): Promise<void> {
  const id = sql`${notificationId}::uuid`;
  await tx.execute(sql`
    update ${notifications} set ${notification.recipients} = ${recipientsOf(id)} where ${notification.id} = ${id}`);
}
