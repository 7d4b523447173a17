/**
 * Holds what would send by itself in a database that was restored from a back-up, until an operator decides. The pause of
 * a notification holds its ranges, its chunks and their tries; what replays dead letters is forgotten.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { boolean, names, text } from "../../platform/database/sql/readers.ts";
import {
  computed,
  isAmong,
  isoTime,
  type RowOf,
  rowCount,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { notifications, replays } from "../schema.ts";
import { createProgress, isHeld, type NotificationProgress } from "./progress.ts";

const notification = names(notifications);
const n = names(notifications, "n");

/** The most notifications that one statement pauses. */
const stepSize = 1_000;

const isUnheld = sql`${notification.completedAt} is null and ${notification.state} in ('PLANNING', 'SENDING')`;

/**
 * Pauses all unfinished notifications, and forgets the replays of dead letters that are under way. Can be repeated, and
 * be run beside processes: within a second they begin no further message.
 * @returns how many replays were forgotten
 */
export async function holdUnfinished(db: Database): Promise<number> {
  const forgotten = await db.delete(replays).returning({ id: replays.id });
  const some = sql`
    select ${notification.id} from ${notifications}
    where ${isUnheld} order by ${notification.id} limit ${stepSize}::int for update`;
  const hold = sql`
    update ${notifications} set ${notification.state} = 'PAUSED', ${notification.heldAt} = now()
    where ${isAmong(notification.id, some)} returning 1 as one`;
  while ((await rowCount(db, hold)) > 0);
  return forgotten.length;
}

/** How many notifications `holdUnfinished` would pause. */
export const countUnheld = (db: Database): Promise<number> => db.$count(notifications, isUnheld);

const heldFields = {
  id: n.id,
  /** Null: it is a test run. */
  clientId: n.clientId,
  /** RFC 3339, UTC, milliseconds: messages that are not sent by then are dropped. */
  expiresAt: computed(text, isoTime(n.expiresAt)),
  /** Whether all its recipients have been found. */
  isPlanned: computed(boolean, sql`${n.plannedAt} is not null`),
};
const held = selection(heldFields);

/** Lists the notifications that are held, in the order of their acceptance. */
export async function listHeld(db: Database): Promise<(RowOf<typeof heldFields> & NotificationProgress)[]> {
  const wanted = sql`select ${held} from ${notifications} n where ${isHeld} order by ${n.id}`;
  const progress = createProgress(db);
  // One after the other: there may be more of them than connections.
  return Array.fromAsync(await rows(db, held, wanted), async (one) => ({
    ...one,
    ...(await progress.get(one.id)),
  }));
}
