/**
 * The writing down of a chunk: what came of its messages, what becomes of the devices left over, and the end of
 * its job, in one transaction. Only the worker that took the chunk last can write it.
 */
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

/** What a worker did with a chunk. */
export interface ChunkResult {
  readonly sent: number;
  /** The dead included. */
  readonly failed: number;
  readonly dropped: number;
  readonly dead: readonly DeadDevice[];
  /** Whether the dead may be removed, if their notification allows it. */
  readonly removeDead: boolean;
  /** Devices that are still to be sent to. */
  readonly rest: readonly number[];
  /** What becomes of them, where their notification is still to be sent. */
  readonly next: NextTry;
}

export interface NextTry {
  /** Milliseconds from now. */
  readonly afterMs: number;
  /** Retries so far. */
  readonly retries: number;
  /** Why; null: no error left them. */
  readonly reason: string | null;
  /** They are not tried again by themselves. */
  readonly giveUp: boolean;
}

/** `HELD`, `PENDING`: the rest waits. `DONE`, `DEAD`: the chunk has ended. */
type SettledState = "PENDING" | "HELD" | "DONE" | "DEAD";

export interface Settled {
  readonly state: SettledState;
  /** Devices of the rest that were dropped, because the notification was cancelled or has expired. */
  readonly dropped: number;
  /** Dead devices given to removal. */
  readonly removed: number;
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly provider: ProviderName;
  readonly removeDeadDevices: RemoveDeadDevices;
}

/** @throws JobLostError if the chunk or its job is another worker's by now; then nothing is written */
export async function settleChunk(
  { db, jobs, provider, removeDeadDevices }: Dependencies,
  job: Job<DeliveryJob>,
  chunk: TakenChunk,
  result: ChunkResult,
): Promise<Settled> {
  const { dead, rest, next } = result;
  const queue = deliveryQueue(provider);
  return db.transaction(async (tx) => {
    const hasToLook = rest.length > 0 || dead.length > 0;
    const notification = hasToLook ? await lockNotification(tx, chunk.notification.id) : undefined;
    const state = stateAfter(result, notification);
    const isDropped = state === "DONE" && rest.length > 0;
    await writeChunk(tx, chunk, result, state);
    const removable = result.removeDead && notification?.isRemovalStopped === false ? dead : [];
    // In the order of their ids, as two notifications may find the same devices dead at once.
    if (removable.length > 0)
      await removeDeadDevices(
        tx,
        removable.toSorted((a, b) => a.deviceId - b.deviceId),
      );
    if (state === "PENDING") {
      await jobs.enqueue(tx, queue, [
        { data: job.data, priority: job.priority, startAfterSeconds: next.afterMs / 1000 },
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

/** Until the transaction ends nobody pauses, resumes or cancels it. */
async function lockNotification(tx: Database, id: string): Promise<LockedNotification> {
  const [row] = await rows(tx, locked, selectLocked({ id }));
  // Without its notification a chunk is worth nothing.
  return row ?? { state: "CANCELLED", isExpired: true, isRemovalStopped: true };
}

function stateAfter({ rest, next }: ChunkResult, notification: LockedNotification | undefined): SettledState {
  if (rest.length === 0 || !notification) return "DONE";
  if (notification.state === "CANCELLED" || notification.isExpired) return "DONE";
  if (notification.state === "PAUSED") return "HELD";
  return next.giveUp ? "DEAD" : "PENDING";
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
  "isHeld",
] as const;

const updateSettled = prepared(writeParameters, (parameter) => {
  const chunk = names(deliveryChunks);
  const more = (column: SQL, count: Placeholder) => sql`${column} = ${column} + ${count}::int`;
  return sql`
    update ${deliveryChunks}
    set ${chunk.state} = ${parameter.state}, ${chunk.deviceIds} = ${parameter.left}::bigint[],
      ${more(chunk.sent, parameter.sent)}, ${more(chunk.failed, parameter.failed)},
      ${more(chunk.dropped, parameter.dropped)}, ${more(chunk.dead, parameter.dead)},
      ${chunk.retries} = ${parameter.retries}::int, ${chunk.reason} = ${parameter.reason}::text,
      ${chunk.firstAttemptAt} = case when ${parameter.isHeld}::boolean then null else ${chunk.firstAttemptAt} end,
      ${chunk.updatedAt} = now()
    where ${chunk.id} = ${parameter.id}::bigint and ${chunk.attempt} = ${parameter.attempt}::int
      and ${chunk.state} = 'SENDING'
    returning 1 as one`;
});

async function writeChunk(
  tx: Database,
  chunk: TakenChunk,
  result: ChunkResult,
  state: SettledState,
): Promise<void> {
  const { sent, failed, dead, rest, next } = result;
  const left = state === "DONE" ? [] : rest;
  const isHeld = state === "HELD";
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
      retries: isHeld ? 0 : next.retries,
      reason: next.reason,
      isHeld,
    }),
  );
  if (written === 0) throw new JobLostError(`chunk ${chunk.id} is another worker's now`);
}
