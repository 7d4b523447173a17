/**
 * How chunks follow their notification, whose state alone decides from its commit on whether they are sent. They are
 * written afterwards, in steps: parked as they are met, READY again after the resume, or dropped.
 */
import { and, eq, inArray, or, type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import type { ChunkState } from "../queue/chunk-states.ts";
import { storeDropped } from "../queue/store-outcomes.ts";
import { deliveryChunks } from "../schema.ts";
import { type LockedNotification, lockNotification } from "./lock-notification.ts";
import { releaseRanges } from "./ranges.ts";

/** The most chunks that one step writes. */
const stepSize = 1_000;

const chunk = deliveryChunks;

/** The states of chunks that nobody has, and that are not done. */
export const untaken = ["READY", "WAITING", "PARKED"] as const satisfies ChunkState[];
/** The states of chunks that are not done. */
export const open = [...untaken, "TAKEN"] as const satisfies ChunkState[];

const atRest = { processId: null, dueAt: null, awaits: null, updatedAt: sql`now()` };
/** Resuming begins the count of tries anew. */
const parked = { ...atRest, state: "PARKED", retries: 0, takes: 0, firstAttemptAt: null };
const ready = { ...atRest, state: "READY" };
const dropped = {
  ...atRest,
  state: "DONE",
  dropped: sql`${chunk.dropped} + cardinality(${chunk.deviceIds})`,
  deviceIds: [],
};

/** What becomes of chunks: those in the states become `to`. */
interface Fate {
  readonly from: readonly ChunkState[];
  readonly to: typeof parked | typeof ready | typeof dropped;
}

/** The notification of the chunks that are written. */
interface Of {
  readonly notificationId: string;
  readonly keepsOutcomes: boolean | undefined;
}

/** Writes chunks that nobody else is writing. @returns the devices that each had left, and its provider */
async function write(tx: Database, of: Of, which: SQL | undefined, to: Fate["to"], limit = stepSize) {
  const { id, provider, planned, sent, failed } = chunk;
  const found = await tx
    .select({ id, provider, planned, sent, failed, dropped: chunk.dropped })
    .from(chunk)
    .where(which)
    .limit(limit)
    .for("update", { skipLocked: true });
  if (found.length > 0) {
    const chunkIds = found.map((one) => one.id);
    if (of.keepsOutcomes && to === dropped) await storeDropped(tx, of.notificationId, chunkIds);
    const ids = arrayLiteral(chunkIds);
    await tx.update(chunk).set(to).where(sql`${id} = any(${ids}::bigint[])`);
  }
  return found.map((one) => ({
    provider: one.provider,
    devices: one.planned - one.sent - one.failed - one.dropped,
  }));
}

/**
 * Does one step: the next chunks follow.
 * @param notification as this transaction has locked it, with its new state
 * @returns whether more may be left
 */
export async function followStep(
  tx: Database,
  notificationId: string,
  notification: Pick<LockedNotification, "state" | "isAbandoned" | "keepsOutcomes">,
): Promise<boolean> {
  const { state, isAbandoned, keepsOutcomes } = notification;
  const step = async ({ from, to }: Fate) => {
    const which = and(eq(chunk.notificationId, notificationId), inArray(chunk.state, from));
    return (await write(tx, { notificationId, keepsOutcomes }, which, to)).length >= stepSize;
  };
  // Its workers, should they be there after all, can write no chunk that is done.
  if (isAbandoned) return step({ from: open, to: dropped });
  if (state === "CANCELLED") return step({ from: untaken, to: dropped });
  if (state === "PLANNING") await releaseRanges(tx, notificationId);
  return (state === "PLANNING" || state === "SENDING") && step({ from: ["PARKED"], to: ready });
}

/** What becomes of a chunk that is not to be sent, and of others of its notification with it. */
function fateOf(notification: LockedNotification | undefined): Fate {
  if (notification?.state === "PAUSED") return { from: ["READY"], to: parked };
  if (!notification || notification.state === "CANCELLED" || notification.isExpired)
    return { from: untaken, to: dropped };
  return { from: [], to: ready };
}

/**
 * Sets a chunk aside that this process has taken or met, as its notification is not to be sent now, and up to 999 others
 * with it. If it is to be sent after all, it is READY again, as if it had not been taken.
 * @returns the devices that were dropped; none if the attempt has lost the chunk
 */
export function setAside(
  db: Database,
  { id, attempt, notificationId }: { id: number; attempt: string; notificationId: string },
): Promise<{ readonly dropped: number }> {
  return db.transaction(async (tx) => {
    const notification = await lockNotification(tx, notificationId, "share");
    const { from, to } = fateOf(notification);
    const of = { notificationId, keepsOutcomes: notification?.keepsOutcomes };
    const isOwn = and(eq(chunk.attempt, attempt), eq(chunk.state, "TAKEN"));
    const own = and(eq(chunk.id, id), or(isOwn, inArray(chunk.state, from)));
    const taken = to === ready ? { ...ready, takes: sql`greatest(${chunk.takes} - 1, 0)` } : to;
    const [one] = await write(tx, of, own, taken);
    if (!one) return { dropped: 0 };
    const ofNotification = and(eq(chunk.notificationId, notificationId), eq(chunk.provider, one.provider));
    const which = and(ofNotification, inArray(chunk.state, from));
    const others = from.length > 0 ? await write(tx, of, which, to, stepSize - 1) : [];
    return { dropped: to === dropped ? [one, ...others].reduce((sum, { devices }) => sum + devices, 0) : 0 };
  });
}
