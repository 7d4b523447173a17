/**
 * Removes what has expired or is past its retention, in short transactions, by the database's clock, one process at a
 * time.
 */
import { type SQL, sql } from "drizzle-orm";
import { type JanitorStep, runRound, startRounds } from "../platform/base/janitor.ts";
import type { Loop } from "../platform/base/loop.ts";
import type { JanitorObserver } from "../platform/base/observers.ts";
import { lowestUuidv7 } from "../platform/crypto/random.ts";
import { arrayLiteral, type Database } from "../platform/database/database.ts";
import { boolean, names, number } from "../platform/database/sql/readers.ts";
import {
  computed,
  ctid,
  isAmong,
  onlyRow,
  rowCount,
  rows,
  selection,
} from "../platform/database/sql/statements.ts";
import type { Logger } from "../platform/observability/logger.ts";
import { removeDevices } from "./devices/remove-devices.ts";
import { removeEntries } from "./history/remove-entries.ts";
import { createEntryRemoval, removeViews } from "./history/remove-history.ts";
import { historyEntries, messageOutcomes, notificationUsers, sendRates } from "./recipients-schema.ts";
import { deliveryChunks, devices, historyBlocks, idempotencyKeys, inbox, notifications } from "./schema.ts";

/** Kinds of rows, for the metrics. */
export const janitorKinds = [
  "devices",
  "history_blocks",
  "history_entries",
  "history_users",
  "history_views",
  "message_outcomes",
  "send_rates",
  "notification_users",
  "delivery_chunks",
  "notifications",
  "idempotency_keys",
  "inbox",
] as const;
type JanitorKind = (typeof janitorKinds)[number];

interface Dependencies {
  readonly db: Database;
  readonly observer?: JanitorObserver<JanitorKind> | undefined;
  /** Days for which history and notifications are kept. */
  readonly historyRetentionDays: number;
  /** Days for which what became of each device is kept; 7 unless given. */
  readonly outcomeRetentionDays?: number;
  /** Returns the days for which the ids of events are kept; 8 unless given. While it rejects, none is removed. */
  readonly inboxRetentionDays?: () => Promise<number>;
}

const dayMs = 24 * 60 * 60 * 1000;

/** Rows that one transaction removes: few enough to stay well below the statement timeout. */
const batchSize = 5_000;
/** Notifications that one transaction removes; each may have some thousands of chunks. */
const notificationBatch = 100;

const device = names(devices);
const block = names(historyBlocks);
const entry = names(historyEntries);
const outcome = names(messageOutcomes);
const rate = names(sendRates);
const key = names(idempotencyKeys);
const received = names(inbox);
const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const n = names(notifications, "n");
const named = names(notificationUsers);

const removable = selection({ id: n.id });
const clock = selection({ now: computed(number, sql`floor(extract(epoch from now()) * 1000)::float8`) });
const isLocked = sql`pg_try_advisory_xact_lock(hashtext('push.janitor'))`;
const lock = selection({ isAcquired: computed(boolean, isLocked) });

/** What a batch has removed. */
interface Removed {
  readonly rows: Partial<Record<JanitorKind, number>>;
  /** Whether more rows may be left. */
  readonly isFull: boolean;
  /** Called once the transaction has committed. */
  readonly committed?: () => void;
}

/** Removes a batch in a transaction; undefined if rows of a step before it must go first. */
type RemoveBatch = (tx: Database) => Promise<Removed | undefined>;

/** A step that removes batches, each in a transaction, until none is left or another process holds the lock. */
const inTransactions = (
  db: Database,
  kinds: readonly JanitorKind[],
  removeBatch: RemoveBatch,
): JanitorStep<JanitorKind> => ({
  kinds,
  async run({ stopping, cleaned }) {
    while (!stopping?.aborted) {
      const removed = await db.transaction(async (tx) => {
        const { isAcquired } = await onlyRow(tx, lock, sql`select ${lock}`);
        return isAcquired ? removeBatch(tx) : undefined;
      });
      if (!removed) return false;
      removed.committed?.();
      for (const kind of kinds) cleaned(kind, removed.rows[kind] ?? 0);
      if (!removed.isFull) return true;
    }
    return false;
  },
});

/**
 * The steps of a round. They skip locked rows instead of waiting; the next round removes those.
 * @param inboxDays for which the ids of events are kept; infinite: all of them are
 */
function stepsOf(
  nowMs: number,
  inboxDays: number,
  { db, historyRetentionDays, outcomeRetentionDays = 7 }: Dependencies,
): readonly JanitorStep<JanitorKind>[] {
  const oldestKept = lowestUuidv7(nowMs - historyRetentionDays * dayMs);
  const oldestOutcome = lowestUuidv7(nowMs - outcomeRetentionDays * dayMs);
  const entries = createEntryRemoval(oldestKept);
  const remove = (kind: JanitorKind, rowsOf: (tx: Database) => Promise<number>) =>
    inTransactions(db, [kind], async (tx) => {
      const removed = await rowsOf(tx);
      return { rows: { [kind]: removed }, isFull: removed === batchSize };
    });
  return [
    remove("devices", (tx) => {
      const expired = sql`
        select ${device.tokenHash} as chosen_hash from ${devices}
        where ${device.expiresAt} <= ${timeOf(nowMs)} order by ${device.expiresAt} ${batch}`;
      return removeDevices(tx, expired, "EXPIRED");
    }),
    inTransactions(db, ["history_users"], async (tx) => {
      const { users, isFull, committed } = await entries.forgetUsers(tx);
      return { rows: { history_users: users }, isFull, committed };
    }),
    inTransactions(db, ["history_blocks"], async (tx) => {
      const removed = await entries.removeBlocks(tx);
      return removed && { rows: { history_blocks: removed.blocks }, isFull: removed.isFull };
    }),
    inTransactions(db, ["history_entries", "history_users"], async (tx) => {
      const { entries, users, isFull } = await removeEntries(tx, oldestKept);
      return { rows: { history_entries: entries, history_users: users }, isFull };
    }),
    inTransactions(db, ["history_views"], async (tx) => {
      const { views, isFull } = await removeViews(tx, oldestKept);
      return { rows: { history_views: views }, isFull };
    }),
    remove("message_outcomes", (tx) => {
      const old = sql`
        select ${ctid} from ${messageOutcomes} where ${outcome.notificationId} < ${oldestOutcome}::uuid
        order by ${outcome.notificationId} ${batch}`;
      return rowCount(tx, sql`delete from ${messageOutcomes} where ${isAmong(ctid, old)} returning 1 as one`);
    }),
    // One that is needed again begins anew.
    remove("send_rates", (tx) =>
      removeUpTo(tx, sendRates, rate.notificationId, rate.queueEndsAt, nowMs - dayMs),
    ),
    // No dead letter that has expired can be replayed.
    remove("notification_users", (tx) => {
      const ended = sql`
        select distinct ${n.id} from ${deliveryChunks} c join ${notifications} n on ${n.id} = ${c.notificationId}
        where ${c.state} = 'DEAD' and ${n.completedAt} is not null and ${n.expiresAt} <= ${timeOf(nowMs)}`;
      const left = sql`select ${ctid} from ${notificationUsers} where ${isAmong(named.notificationId, ended)} ${batch}`;
      return rowCount(
        tx,
        sql`delete from ${notificationUsers} where ${isAmong(ctid, left)} returning 1 as one`,
      );
    }),
    inTransactions(db, ["notifications", "delivery_chunks"], (tx) => removeNotifications(tx, oldestKept)),
    remove("idempotency_keys", (tx) => removeUpTo(tx, idempotencyKeys, key.keyHash, key.expiresAt, nowMs)),
    ...(Number.isFinite(inboxDays)
      ? [
          remove("inbox", (tx) =>
            removeUpTo(tx, inbox, received.eventId, received.receivedAt, nowMs - inboxDays * dayMs),
          ),
        ]
      : []),
  ];
}

const timeOf = (ms: number) => sql`${new Date(ms).toISOString()}::timestamptz`;
const batch = sql`limit ${batchSize} for update skip locked`;

/** Removes a batch of the rows whose time is over, by their keys. @returns how many */
function removeUpTo(
  tx: Database,
  table: typeof idempotencyKeys | typeof inbox | typeof sendRates,
  key: SQL,
  time: SQL,
  ms: number,
): Promise<number> {
  const chosen = sql`select ${key} from ${table} where ${time} <= ${timeOf(ms)} order by ${time} ${batch}`;
  return rowCount(tx, sql`delete from ${table} where ${isAmong(key, chosen)} returning 1 as one`);
}

/**
 * Removes finished notifications older than `oldestKept`, once they have no chunks: first those, dead letters too. One
 * stays while a chunk is still to be sent, or a user's history has an entry of it.
 */
async function removeNotifications(tx: Database, oldestKept: string): Promise<Removed> {
  const ofNotification = sql`${chunk.notificationId} = ${n.id}`;
  const chosen = await rows(
    tx,
    removable,
    sql`
      select ${removable} from ${notifications} n
      where ${n.id} < ${oldestKept}::uuid and ${n.completedAt} is not null
        and not exists (select from ${historyBlocks} where ${block.notificationId} = ${n.id})
        and not exists (select from ${historyEntries} where ${entry.notificationId} = ${n.id})
        and not exists (
          select from ${deliveryChunks} where ${ofNotification} and ${chunk.state} not in ('DONE', 'DEAD'))
      order by ${n.id} limit ${notificationBatch} for update skip locked`,
  );
  if (chosen.length === 0) return { rows: { notifications: 0, delivery_chunks: 0 }, isFull: false };
  const ids = sql`any(${arrayLiteral(chosen.map(({ id }) => id))}::uuid[])`;
  const ended = sql`
    select ${chunk.id} from ${deliveryChunks}
    where ${chunk.notificationId} = ${ids} and ${chunk.state} in ('DONE', 'DEAD') ${batch}`;
  const chunks = await rowCount(
    tx,
    sql`delete from ${deliveryChunks} where ${isAmong(chunk.id, ended)} returning 1 as one`,
  );
  await tx.execute(sql`delete from ${notificationUsers} where ${named.notificationId} = ${ids}`);
  const removed = await rowCount(
    tx,
    sql`
      delete from ${notifications} n where ${n.id} = ${ids}
        and not exists (select from ${deliveryChunks} where ${ofNotification})
      returning 1 as one`,
  );
  return {
    rows: { notifications: removed, delivery_chunks: chunks },
    isFull: chunks === batchSize || removed === notificationBatch,
  };
}

/** Runs one round, as {@link runRound}. While another process holds the lock, nothing is removed. */
export async function cleanUp(dependencies: Dependencies, stopping?: AbortSignal): Promise<void> {
  const { db, observer, inboxRetentionDays = async () => 8 } = dependencies;
  const [{ now }, inboxDays] = await Promise.all([
    onlyRow(db, clock, sql`select ${clock}`),
    inboxRetentionDays().catch(() => Number.POSITIVE_INFINITY),
  ]);
  await runRound(stepsOf(now, inboxDays, dependencies), { observer, stopping });
}

/** Runs rounds at an interval until stopped. A round that fails is logged, and the next one comes as usual. */
export function startJanitor(dependencies: Dependencies & { logger: Logger; intervalSeconds: number }): Loop {
  const { logger, intervalSeconds } = dependencies;
  return startRounds({ logger, intervalSeconds, round: (stopping) => cleanUp(dependencies, stopping) });
}
