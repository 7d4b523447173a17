/**
 * Stores the results of a chunk in one transaction: the counts of its messages, the next state of the devices that
 * are left, and the end of its job. Only the worker that took the chunk last can do so.
 */
import { randomUUID } from "node:crypto";
import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean } from "../../platform/database/readers.ts";
import {
  computed,
  prepared,
  type RowOf,
  rowCount,
  rows,
  selection,
} from "../../platform/database/statements.ts";
import { type Job, JobLostError, type Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue } from "../database.ts";
import type { DeadDevice } from "../devices/remove-dead.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";
import type { TakenChunk } from "./chunk-repository.ts";

/** Removes devices unless they were registered or renewed at `asOf` or later. */
export type RemoveDeadDevices = (tx: Database, dead: readonly DeadDevice[]) => Promise<unknown>;

/** The results of a worker's attempt at a chunk. */
export interface ChunkResult {
  readonly sent: number;
  /** Includes the dead devices. */
  readonly failed: number;
  readonly dropped: number;
  readonly dead: readonly DeadDevice[];
  /** Whether the dead devices may be removed, if the notification's removal is not stopped. */
  readonly removeDead: boolean;
  /** Ids of the devices that are still to be sent to. */
  readonly rest: readonly number[];
  /** The next try of these devices, if their notification is still to be sent. */
  readonly next: NextTry;
}

export interface NextTry {
  /** Milliseconds from now. */
  readonly afterMs: number;
  /** Retries so far. */
  readonly retries: number;
  /** The error that left the devices; null: no error did. */
  readonly reason: string | null;
  /** The devices are not tried again unless an operator replays them. */
  readonly giveUp: boolean;
}

/** `PENDING`: the rest waits. `DONE`, `DEAD`: the chunk has ended. */
type SettledState = "PENDING" | "DONE" | "DEAD";

export interface Settled {
  readonly state: SettledState;
  /** Remaining devices that were dropped, because the notification was cancelled or has expired. */
  readonly dropped: number;
  /** Dead devices that were handed to removal. */
  readonly removed: number;
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly provider: ProviderName;
  readonly removeDeadDevices: RemoveDeadDevices;
}

/** @throws JobLostError if another worker has the chunk or its job by now; then nothing is stored */
export async function settleChunk(
  { db, jobs, provider, removeDeadDevices }: Dependencies,
  job: Job<DeliveryJob>,
  chunk: TakenChunk,
  result: ChunkResult,
): Promise<Settled> {
  const { dead, rest, next } = result;
  const queue = deliveryQueue(provider);
  return db.transaction(async (tx) => {
    const needsNotification = rest.length > 0 || dead.length > 0;
    const notification = needsNotification ? await lockNotification(tx, chunk.notification.id) : undefined;
    const state = stateAfter(result, notification);
    const isDropped = state === "DONE" && rest.length > 0;
    // Without a job it is parked: it gets one when its notification is resumed.
    const isParked = state === "PENDING" && notification?.state === "PAUSED";
    const nextJobId = state === "PENDING" && !isParked ? randomUUID() : null;
    await writeChunk(tx, chunk, result, { state, nextJobId, isParked });
    const removable = result.removeDead && notification?.isRemovalStopped === false ? dead : [];
    // Ordered by id to avoid deadlocks: two notifications may find the same devices dead at once.
    if (removable.length > 0)
      await removeDeadDevices(
        tx,
        removable.toSorted((a, b) => a.deviceId - b.deviceId),
      );
    if (nextJobId !== null) {
      await jobs.enqueue(tx, queue, [
        { id: nextJobId, data: job.data, priority: job.priority, startAfterSeconds: next.afterMs / 1000 },
      ]);
    }
    await jobs.complete(tx, queue, job);
    return { state, dropped: isDropped ? rest.length : 0, removed: removable.length };
  });
}

const notification = names(notifications);
const lockedFields = {
  state: notification.state,
  isExpired: computed(boolean, sql`${notification.expiresAt} <= now()`),
  isRemovalStopped: computed(boolean, sql`${notification.removalStoppedAt} is not null`),
};
const locked = selection(lockedFields);
type LockedNotification = RowOf<typeof lockedFields>;

const selectLocked = prepared(
  ["id"],
  ({ id }) => sql`select ${locked} from ${notifications} where ${notification.id} = ${id}::uuid for share`,
);

/** Keeps the notification from being paused, resumed or cancelled until the transaction ends. */
async function lockNotification(tx: Database, id: string): Promise<LockedNotification> {
  const [row] = await rows(tx, locked, selectLocked({ id }));
  // A chunk whose notification is missing is treated as cancelled.
  return row ?? { state: "CANCELLED", isExpired: true, isRemovalStopped: true };
}

function stateAfter({ rest, next }: ChunkResult, notification: LockedNotification | undefined): SettledState {
  if (rest.length === 0 || !notification) return "DONE";
  if (notification.state === "CANCELLED" || notification.isExpired) return "DONE";
  return next.giveUp && notification.state !== "PAUSED" ? "DEAD" : "PENDING";
}

const writeParameters = [
  "id",
  "attempt",
  "state",
  "left",
  "sent",
  "failed",
  "dropped",
  "dead",
  "retries",
  "reason",
  "nextJobId",
  "isParked",
] as const;

const updateSettled = prepared(writeParameters, (parameter) => {
  const chunk = names(deliveryChunks);
  const increased = (column: SQL, count: Placeholder) => sql`${column} = ${column} + ${count}::int`;
  return sql`
    update ${deliveryChunks}
    set ${chunk.state} = ${parameter.state}, ${chunk.deviceIds} = ${parameter.left}::bigint[],
      ${increased(chunk.sent, parameter.sent)}, ${increased(chunk.failed, parameter.failed)},
      ${increased(chunk.dropped, parameter.dropped)}, ${increased(chunk.dead, parameter.dead)},
      ${chunk.retries} = ${parameter.retries}::int, ${chunk.reason} = ${parameter.reason}::text,
      ${chunk.jobId} = ${parameter.nextJobId}::uuid,
      ${chunk.firstAttemptAt} = case when ${parameter.isParked}::boolean then null else ${chunk.firstAttemptAt} end,
      ${chunk.updatedAt} = now()
    where ${chunk.id} = ${parameter.id}::bigint and ${chunk.attempt} = ${parameter.attempt}::int
      and ${chunk.state} = 'SENDING'
    returning 1 as one`;
});

async function writeChunk(
  tx: Database,
  chunk: TakenChunk,
  result: ChunkResult,
  {
    state,
    nextJobId,
    isParked,
  }: { readonly state: SettledState; readonly nextJobId: string | null; readonly isParked: boolean },
): Promise<void> {
  const { sent, failed, dead, rest, next } = result;
  const left = state === "DONE" ? [] : rest;
  const written = await rowCount(
    tx,
    updateSettled({
      id: chunk.id,
      attempt: chunk.attempt,
      state,
      left: arrayLiteral(left.map(String)),
      sent,
      failed,
      dropped: result.dropped + rest.length - left.length,
      dead: dead.length,
      retries: isParked ? 0 : next.retries,
      reason: next.reason,
      nextJobId,
      isParked,
    }),
  );
  if (written === 0) throw new JobLostError(`another worker has taken chunk ${chunk.id}`);
}
