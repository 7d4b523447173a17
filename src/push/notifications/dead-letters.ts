/**
 * Dead letters: chunks that were given up. They wait for an operator, who lists them and sends them again. Owns
 * also what becomes of jobs that failed for good, so that none takes its recipients with it.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { type Database, rows } from "../../platform/database/database.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { deadLetterNotFound, notificationFinished } from "../errors.ts";
import type { ProviderName } from "../provider-settings.ts";
import { enqueueChunks } from "./chunk-jobs.ts";
import { lockNotification } from "./lock-notification.ts";
import type { Page, PageRequest } from "./page.ts";

export interface DeadLetter {
  readonly id: string;
  readonly notificationId: string;
  readonly provider: ProviderName;
  /** Minutes. */
  readonly utcOffset: number;
  /** How many were not sent to. */
  readonly devices: number;
  readonly reason: string;
  /** ISO 8601, UTC, with milliseconds. */
  readonly since: string;
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "enqueue">;
  readonly clock: Clock;
}

interface DeadLetters {
  /** Those given up last first. */
  list(request: PageRequest): Promise<Page<DeadLetter>>;
  /**
   * Sends one again. One whose notification was cancelled or has expired stays as it is: nobody wants it any more.
   * @throws ServiceError `dead_letter_not_found`, `notification_finished`
   */
  replay(chunkId: string): Promise<void>;
}

/** What fits into the column, with room to spare. */
const chunkIdForm = /^[1-9]\d{0,15}$/;

export function createDeadLetters({ db, jobs, clock }: Dependencies): DeadLetters {
  return {
    async list({ page, size }) {
      const found = await rows<Omit<DeadLetter, "id"> & { id: string | null; total: number }>(
        db,
        sql`
          select c.id::text, c.notification_id::text as "notificationId", c.provider, c.utc_offset as "utcOffset",
            c.planned - c.sent - c.failed - c.dropped as devices, coalesce(c.reason, 'unknown') as reason,
            to_char(c.updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as since, total
          from (select count(*)::int as total from push.delivery_chunks where state = 'DEAD') as counted
          left join (
            select * from push.delivery_chunks where state = 'DEAD'
            order by updated_at desc, id desc limit ${size}::int offset ${page * size}::bigint
          ) as c on true
          order by c.updated_at desc, c.id desc`,
      );
      const content = found.flatMap(({ id, total: _, ...letter }) =>
        id === null ? [] : [{ id, ...letter }],
      );
      return { content, number: page, size, totalElements: found[0]?.total ?? 0 };
    },
    async replay(chunkId) {
      if (!chunkIdForm.test(chunkId)) throw deadLetterNotFound();
      await db.transaction(async (tx) => {
        const [chunk] = await rows<{ notificationId: string; provider: ProviderName }>(
          tx,
          sql`
            select notification_id::text as "notificationId", provider
            from push.delivery_chunks where id = ${chunkId}::bigint and state = 'DEAD'`,
        );
        const notification = chunk && (await lockNotification(tx, chunk.notificationId));
        if (!notification) throw deadLetterNotFound();
        if (notification.state === "CANCELLED" || notification.expiresAt <= clock.now())
          throw notificationFinished();
        const isPaused = notification.state === "PAUSED";
        const now = new Date(clock.now()).toISOString();
        const reopened = await rows(
          tx,
          sql`
            update push.delivery_chunks
            set state = ${isPaused ? "HELD" : "PENDING"}, retries = 0, first_attempt_at = null, reason = null,
              updated_at = ${now}::timestamptz
            where id = ${chunkId}::bigint and state = 'DEAD'
            returning 1 as one`,
        );
        if (reopened.length === 0) throw deadLetterNotFound();
        await tx.execute(sql`
          update push.notifications set state = 'SENDING', completed_at = null
          where id = ${chunk.notificationId}::uuid and state = 'COMPLETED'`);
        if (isPaused) return;
        const { isTest } = notification;
        await enqueueChunks(tx, jobs, [{ id: Number(chunkId), provider: chunk.provider }], {
          first: 0,
          isTest,
        });
      });
    },
  };
}
