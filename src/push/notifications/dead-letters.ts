/**
 * Dead letters: chunks that were given up. They wait for an operator, who lists and replays them.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { integer, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, isoTime, rawRows, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { replayQueue } from "../database.ts";
import { deadLetterNotFound, notificationFinished, notificationNotFound } from "../errors.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { deliveryChunks } from "../schema.ts";
import { wakeWorkers } from "./chunk-jobs.ts";
import { followNotification } from "./follow-chunks.ts";
import { lockNotification } from "./lock-notification.ts";
import type { Page, PageRequest } from "./page.ts";
import { type DeadLetterFilter, enqueueReplay, reopenDeadLetters } from "./replay-dead-letters.ts";

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
  readonly jobs: Pick<Jobs, "enqueue" | "wake">;
  readonly clock: Clock;
}

interface DeadLetters {
  /** The latest first. */
  list(request: PageRequest): Promise<Page<DeadLetter>>;
  /**
   * Sends a dead letter again. One whose notification was cancelled, was recalled or has expired cannot be replayed,
   * and stays.
   * @throws ServiceError `dead_letter_not_found`, `notification_finished`
   */
  replay(chunkId: string): Promise<void>;
  /**
   * Has all dead letters that there are now sent again, or those that the filter names, in the background.
   * @throws ServiceError `notification_not_found`
   */
  replayAll(filter: DeadLetterFilter): Promise<void>;
}

/** Accepts only numbers that fit into the column (bigint). */
const chunkIdPattern = /^[1-9]\d{0,15}$/;

const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const provider = oneOf(providerNames);

const counted = selection({ total: computed(integer, sql`total`) });
const deadLetter = selection({
  id: computed(text, sql`${c.id}::text`),
  notificationId: c.notificationId,
  provider: computed(provider, c.provider),
  utcOffset: c.utcOffset,
  devices: computed(integer, sql`${c.planned} - ${c.sent} - ${c.failed} - ${c.dropped}`),
  reason: computed(text, sql`coalesce(${c.reason}, 'unknown')`),
  since: computed(text, isoTime(c.updatedAt)),
});
const deadChunk = selection({ notificationId: chunk.notificationId });

export function createDeadLetters({ db, jobs, clock }: Dependencies): DeadLetters {
  return {
    async list({ page, size }) {
      const found = await rawRows(
        db,
        sql`
          select ${deadLetter}, ${counted}
          from (select count(*)::int as total from ${deliveryChunks} where ${chunk.state} = 'DEAD') as counted
          left join (
            select * from ${deliveryChunks} where ${chunk.state} = 'DEAD'
            order by ${chunk.updatedAt} desc, ${chunk.id} desc limit ${size}::int offset ${page * size}::bigint
          ) as c on true
          order by ${c.updatedAt} desc, ${c.id} desc`,
      );
      const content = found.flatMap((row) => deadLetter.readJoined(row, "id") ?? []);
      return { content, number: page, size, totalElements: counted.read(found[0]).total };
    },
    async replay(chunkId) {
      if (!chunkIdPattern.test(chunkId)) throw deadLetterNotFound();
      await db.transaction(async (tx) => {
        const [found] = await rows(
          tx,
          deadChunk,
          sql`
            select ${deadChunk} from ${deliveryChunks}
            where ${chunk.id} = ${chunkId}::bigint and ${chunk.state} = 'DEAD'`,
        );
        const locked = found && (await lockNotification(tx, found.notificationId));
        if (!locked) throw deadLetterNotFound();
        const cannotBeReplayed =
          locked.state === "CANCELLED" || locked.isRecalled || locked.expiresAt <= clock.now();
        if (cannotBeReplayed) throw notificationFinished();
        const [notificationId] = await reopenDeadLetters(tx, [Number(chunkId)], clock);
        if (notificationId === undefined) throw deadLetterNotFound();
        const { isTest } = locked;
        const state = locked.state === "COMPLETED" ? "SENDING" : locked.state;
        await followNotification(tx, jobs, { state, isTest }, { notificationId, released: 0 });
      });
      wakeWorkers(jobs);
    },
    async replayAll(filter) {
      const { notificationId } = filter;
      await db.transaction(async (tx) => {
        if (notificationId !== undefined && !(await lockNotification(tx, notificationId)))
          throw notificationNotFound();
        await enqueueReplay(tx, jobs, filter);
      });
      jobs.wake(replayQueue);
    },
  };
}
