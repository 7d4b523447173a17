/** Dead letters: chunks that were given up. They wait for an operator, who lists and replays them. */
import { and, asc, desc, eq, gt, inArray, isNull, lte, ne } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { confirmCommit } from "../../platform/database/confirm.ts";
import type { Database } from "../../platform/database/database.ts";
import { oneOf } from "../../platform/database/sql/readers.ts";
import { deadLetterNotFound, notificationFinished, notificationNotFound } from "../errors.ts";
import type { Page, PageRequest } from "../pages.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { deliveryChunks, notifications, replays } from "../schema.ts";
import { lockNotification } from "./lock-notification.ts";

interface DeadLetter {
  readonly id: string;
  readonly notificationId: string;
  readonly provider: ProviderName;
  /** Minutes. */
  readonly utcOffset: number;
  /** The number of devices that were not sent to. */
  readonly devices: number;
  readonly reason: string;
  /** The time since which it waits: RFC 3339, UTC, milliseconds. */
  readonly since: string;
}

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  readonly clock: Clock;
}

/** Accepts only numbers that fit into the column (bigint). */
const chunkIdPattern = /^[1-9]\d{0,15}$/;

const provider = oneOf(providerNames);
const isDead = eq(deliveryChunks.state, "DEAD");

export function createDeadLetters({ db, wakeUps, clock }: Dependencies) {
  return {
    /** Lists dead letters, the newest first. */
    async deadLetters({ page, size }: PageRequest): Promise<Page<DeadLetter>> {
      const found = await db
        .select()
        .from(deliveryChunks)
        .where(isDead)
        .orderBy(desc(deliveryChunks.updatedAt), desc(deliveryChunks.id))
        .limit(size)
        .offset(page * size);
      const content = found.map((chunk) => ({
        id: String(chunk.id),
        notificationId: chunk.notificationId,
        provider: provider.read(chunk.provider),
        utcOffset: chunk.utcOffset,
        devices: chunk.deviceIds.length,
        reason: chunk.reason ?? "unknown",
        since: chunk.updatedAt.toISOString(),
      }));
      return { content, number: page, size, totalElements: await db.$count(deliveryChunks, isDead) };
    },
    /**
     * Sends a dead letter again.
     * @throws ServiceError `dead_letter_not_found`; `notification_finished` if its notification was cancelled or has
     *   expired
     */
    async replay(chunkId: string): Promise<void> {
      if (!chunkIdPattern.test(chunkId)) throw deadLetterNotFound();
      const id = Number(chunkId);
      await db.transaction(async (tx) => {
        const [found] = await tx
          .select({ notificationId: deliveryChunks.notificationId })
          .from(deliveryChunks)
          .where(and(eq(deliveryChunks.id, id), isDead));
        const locked = found && (await lockNotification(tx, found.notificationId));
        if (!locked) throw deadLetterNotFound();
        if (locked.isRecalled) throw notificationFinished("it was recalled");
        if (locked.state === "CANCELLED") throw notificationFinished("its state is CANCELLED");
        if (locked.expiresAt <= clock.now()) throw notificationFinished("it has expired");
        if ((await reopenDeadLetters(tx, [id], clock)) === 0) throw deadLetterNotFound();
      });
      wakeUps.wake("chunks");
    },
    /**
     * Has all present dead letters sent again in the background, or those that the filter names.
     * @throws ServiceError `notification_not_found`
     */
    async replayAll(filter: DeadLetterFilter): Promise<void> {
      const { notificationId } = filter;
      await db.transaction(async (tx) => {
        if (notificationId !== undefined && !(await lockNotification(tx, notificationId)))
          throw notificationNotFound();
        await requestReplay(tx, filter);
      });
      wakeUps.wake("follow");
    },
  };
}

/** The dead letters to replay: all, or those of a notification or provider. */
interface DeadLetterFilter {
  readonly notificationId?: string | undefined;
  readonly provider?: ProviderName | undefined;
}

/** Has the present dead letters replayed. */
async function requestReplay(tx: Database, filter: DeadLetterFilter): Promise<void> {
  const { id } = deliveryChunks;
  const [last] = await tx.select({ id }).from(deliveryChunks).where(isDead).orderBy(desc(id)).limit(1);
  if (!last) return confirmCommit(tx);
  await tx.insert(replays).values({ through: last.id, ...filter });
}

/** Does the next step of a replay that nobody else is doing. @returns whether there was one */
export function replayStep(db: Database, clock: Clock, stepSize = 1_000): Promise<boolean> {
  return db.transaction(async (tx) => {
    const [replay] = await tx
      .select()
      .from(replays)
      .orderBy(asc(replays.id))
      .limit(1)
      .for("update", { skipLocked: true });
    if (!replay) return false;
    const { id, notificationId, provider } = deliveryChunks;
    const next = await tx
      .select({ id, notificationId, provider })
      .from(deliveryChunks)
      .where(and(isDead, gt(id, replay.after), lte(id, replay.through)))
      .orderBy(asc(id))
      .limit(stepSize);
    const wanted = next.filter(
      (letter) =>
        (replay.notificationId ?? letter.notificationId) === letter.notificationId &&
        (replay.provider ?? letter.provider) === letter.provider,
    );
    const ofThem = [...new Set(wanted.map((letter) => letter.notificationId))];
    // Notifications are locked in the order of their ids, so that no two steps wait for each other.
    await tx
      .select({ id: notifications.id })
      .from(notifications)
      .where(inArray(notifications.id, ofThem))
      .orderBy(asc(notifications.id))
      .for("update");
    const ids = wanted.map((letter) => letter.id);
    await reopenDeadLetters(tx, ids, clock);
    const last = next.at(-1);
    const isThis = eq(replays.id, replay.id);
    if (last && next.length === stepSize) await tx.update(replays).set({ after: last.id }).where(isThis);
    else await tx.delete(replays).where(isThis);
    return true;
  });
}

/**
 * Turns dead letters into chunks that are to be sent, with all their tries, and after all that was not tried; a
 * notification that was completed goes on. A dead letter whose notification was cancelled, was recalled or has expired
 * stays one. The transaction has locked the notifications.
 * @param ids the ids of chunks; those that are not dead are left out
 * @returns how many are to be sent
 */
async function reopenDeadLetters(tx: Database, ids: readonly number[], clock: Clock): Promise<number> {
  const { id, notificationId } = deliveryChunks;
  const now = new Date(clock.now());
  const goesOn = and(
    eq(notifications.id, notificationId),
    ne(notifications.state, "CANCELLED"),
    isNull(notifications.recalledAt),
    gt(notifications.expiresAt, now),
  );
  const fresh = { retries: 0, takes: 0, firstAttemptAt: null, reason: null };
  const reopened = await tx
    .update(deliveryChunks)
    .set({ state: "READY", isRetry: true, updatedAt: now, ...fresh })
    .from(notifications)
    .where(and(inArray(id, ids), isDead, goesOn))
    .returning({ notificationId });
  const ofThem = [...new Set(reopened.map((letter) => letter.notificationId))];
  await tx
    .update(notifications)
    .set({ state: "SENDING", completedAt: null })
    .where(and(inArray(notifications.id, ofThem), eq(notifications.state, "COMPLETED")));
  return reopened.length;
}
