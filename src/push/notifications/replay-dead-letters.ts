/**
 * Replays many dead letters: in steps, by a cursor over their ids, from the lowest to the highest that there was at the
 * request. So each is replayed once, though it may be given up again meanwhile, and the request takes the same time for
 * any number of them.
 */
import { and, asc, desc, eq, gt, inArray, lte, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { confirmCommit } from "../../platform/database/confirm.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { rowCount } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, notifications, replays } from "../schema.ts";

/** The dead letters to replay: all, or those of a notification or provider. */
export interface DeadLetterFilter {
  readonly notificationId?: string | undefined;
  readonly provider?: ProviderName | undefined;
}

const isDead = eq(deliveryChunks.state, "DEAD");

/** Has the present dead letters replayed. */
export async function requestReplay(tx: Database, filter: DeadLetterFilter): Promise<void> {
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
    await reopenDeadLetters(
      tx,
      wanted.map((letter) => letter.id),
      clock,
    );
    const last = next.at(-1);
    const isThis = eq(replays.id, replay.id);
    if (last && next.length === stepSize) await tx.update(replays).set({ after: last.id }).where(isThis);
    else await tx.delete(replays).where(isThis);
    return true;
  });
}

const chunk = names(deliveryChunks);
const notification = names(notifications);
const c = names(deliveryChunks, "c");
const n = names(notifications, "n");

/**
 * Turns dead letters into chunks that are to be sent, with all their tries, and after all that was not tried; a
 * notification that was completed goes on. A dead letter whose notification was cancelled, was recalled or has expired
 * stays one. The transaction has locked the notifications. It is SQL text, as it writes two tables at once.
 * @param ids the ids of chunks; those that are not dead are left out
 * @returns how many are to be sent
 */
export function reopenDeadLetters(tx: Database, ids: readonly number[], clock: Clock): Promise<number> {
  const now = sql`${new Date(clock.now()).toISOString()}::timestamptz`;
  return rowCount(
    tx,
    sql`
      with reopened as (
        update ${deliveryChunks} c
        set ${chunk.state} = 'READY', ${chunk.retries} = 0, ${chunk.takes} = 0, ${chunk.firstAttemptAt} = null,
          ${chunk.reason} = null, ${chunk.isRetry} = true, ${chunk.updatedAt} = ${now}
        from ${notifications} n
        where ${c.id} = any(${arrayLiteral(ids)}::bigint[]) and ${c.state} = 'DEAD'
          and ${n.id} = ${c.notificationId} and ${n.state} <> 'CANCELLED' and ${n.recalledAt} is null
          and ${n.expiresAt} > ${now}
        returning ${c.notificationId}
      ), resumed as (
        update ${notifications} set ${notification.state} = 'SENDING', ${notification.completedAt} = null
        where ${notification.id} in (select ${chunk.notificationId} from reopened)
          and ${notification.state} = 'COMPLETED'
      )
      select 1 as one from reopened`,
  );
}
