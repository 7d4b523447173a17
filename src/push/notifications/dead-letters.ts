/** Dead letters: chunks that were given up. They wait for an operator, who lists and replays them. */
import { and, desc, eq } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { oneOf } from "../../platform/database/sql/readers.ts";
import { deadLetterNotFound, notificationFinished, notificationNotFound } from "../errors.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { deliveryChunks } from "../schema.ts";
import { lockNotification } from "./lock-notification.ts";
import type { Page, PageRequest } from "./page.ts";
import { type DeadLetterFilter, reopenDeadLetters, requestReplay } from "./replay-dead-letters.ts";

export interface DeadLetter {
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

/** The operations on dead letters, as `Notifications` has them. */
export function createDeadLetters({ db, wakeUps, clock }: Dependencies) {
  return {
    async list({ page, size }: PageRequest): Promise<Page<DeadLetter>> {
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
        const hasEnded = locked.state === "CANCELLED" || locked.isRecalled || locked.expiresAt <= clock.now();
        if (hasEnded) throw notificationFinished();
        if ((await reopenDeadLetters(tx, [id], clock)) === 0) throw deadLetterNotFound();
      });
      wakeUps.wake("chunks");
    },
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
