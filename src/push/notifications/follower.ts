/**
 * The follower: has chunks follow their notifications, replays dead letters, and at an interval does what was left
 * undone.
 */
import { and, gt, ne, type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import type { Loop } from "../../platform/base/loop.ts";
import { startWorker, type WakeUps } from "../../platform/base/loop.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { rows, selection } from "../../platform/database/sql/statements.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { Work } from "../queue/work.ts";
import { deliveryChunks, notifications, planRanges } from "../schema.ts";
import { completeIfDone, nothingIsLeft } from "./complete-notification.ts";
import { replayStep } from "./dead-letters.ts";
import { followStep, open, untaken } from "./follow-chunks.ts";
import { isAbandoned, lockNotification } from "./lock-notification.ts";
import { retryAfterSeconds } from "./ranges.ts";

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: WakeUps<Work>;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Seconds between two looks for what was left undone; 30 unless given. */
  readonly intervalSeconds?: number;
}

export function createFollower(dependencies: Dependencies) {
  const { db, wakeUps, clock, logger, intervalSeconds = 30 } = dependencies;
  const followed = new Set<string>();
  let sweptAt = Number.NEGATIVE_INFINITY;

  async function follow(notificationId: string): Promise<void> {
    const isMore = await db.transaction(async (tx) => {
      const notification = await lockNotification(tx, notificationId);
      return notification !== undefined && followStep(tx, notificationId, notification);
    });
    if (isMore) return;
    followed.delete(notificationId);
    await completeIfDone(db, notificationId, clock);
  }

  /** Does a step of all that there is to do. @returns whether more may be left */
  async function round(stopping?: AbortSignal): Promise<boolean> {
    if (performance.now() - sweptAt >= intervalSeconds * 1000) {
      sweptAt = performance.now();
      await correctDueTimes(db);
      for (const id of await leftOver(db)) followed.add(id);
    }
    for (const id of followed) {
      if (stopping?.aborted) return false;
      await follow(id).catch((err: unknown) => {
        // It is found again at the next look.
        followed.delete(id);
        logger.warn({ err, notificationId: id }, "A notification could not be followed or completed yet");
      });
    }
    const isMore = await replayStep(db, clock);
    wakeUps.wake("ranges", "chunks");
    return isMore || followed.size > 0;
  }

  return {
    /** Has the other chunks of the notification follow it, and completes it if nothing is left. */
    follow(notificationId: string): void {
      followed.add(notificationId);
      wakeUps.wake("follow");
    },
    round,
    /** Does rounds until stopped, and looks for what was left undone, at once and then at the interval. */
    start: (): Loop =>
      startWorker({
        ...{ wakeUps, kind: "follow", work: round, idleMs: intervalSeconds * 1000 },
        onError: (err) => logger.warn({ err }, "Notifications could not be followed or completed yet"),
      }),
  };
}

/** The most notifications that one look finds. */
const mostFound = 1_000;

const n = names(notifications, "n");
const c = names(deliveryChunks, "c");
const r = names(planRanges, "r");
const listed = selection({ id: n.id });
const states = (of: readonly string[]): SQL => sql`${arrayLiteral(of)}::text[]`;

/**
 * The unfinished notifications with chunks or ranges that have not followed them, or with nothing left. It is SQL text
 * for its `offset 0` (docs/contributing/statements.md).
 */
async function leftOver(db: Database): Promise<string[]> {
  const found = await rows(
    db,
    listed,
    sql`
      select ${listed} from ${notifications} n where ${n.completedAt} is null and (
        exists (
          select from ${deliveryChunks} c where ${c.notificationId} = ${n.id} and ${c.state} = any(case
            when ${isAbandoned(n.expiresAt)} then ${states(open)}
            when ${n.state} = 'CANCELLED' then ${states(untaken)}
            when ${n.state} in ('PLANNING', 'SENDING') then '{PARKED}' end) offset 0)
        or ${n.state} = 'PLANNING' and exists (
          select from ${planRanges} r
          where ${r.notificationId} = ${n.id} and ${r.dueAt} = 'infinity' offset 0)
        or ${nothingIsLeft})
      limit ${mostFound}::int`,
  );
  return found.map(({ id }) => id);
}

/** Makes ranges and chunks due that were written before the database's clock was set back. */
async function correctDueTimes(db: Database): Promise<void> {
  const isWritten = gt(deliveryChunks.updatedAt, sql`now() + interval '1 minute'`);
  await db
    .update(deliveryChunks)
    .set({ dueAt: sql`now()`, updatedAt: sql`now()` })
    .where(and(sql`${deliveryChunks.state} = 'WAITING'`, isWritten));
  const late = gt(planRanges.dueAt, sql`now() + make_interval(secs => ${2 * retryAfterSeconds})`);
  await db
    .update(planRanges)
    .set({ dueAt: sql`now()` })
    .where(and(late, ne(planRanges.dueAt, sql`'infinity'`)));
}
