/**
 * Removes rows that have expired or are older than their retention, in many short transactions of a bounded number of
 * rows. One process cleans up at a time: a process that does not get the lock skips the step. Times are the
 * database's, so that a process with a wrong clock removes nothing that is live.
 */
import { type SQL, sql } from "drizzle-orm";
import { every, type Loop } from "../platform/base/loop.ts";
import type { JanitorObserver } from "../platform/base/observers.ts";
import { arrayLiteral, type Database } from "../platform/database/database.ts";
import { names } from "../platform/database/names.ts";
import { boolean, number } from "../platform/database/readers.ts";
import { computed, rowCount, rows, selection } from "../platform/database/statements.ts";
import { removeKept } from "../platform/messaging/kept-events.ts";
import type { Logger } from "../platform/observability/logger.ts";
import { removeDevices } from "./devices/remove-devices.ts";
import { createEntryRemoval, removeViews } from "./history/remove-history.ts";
import {
  deliveryChunks,
  devices,
  historyBlocks,
  idempotencyKeys,
  inbox,
  keptEvents,
  notifications,
} from "./schema.ts";

/** Kinds of rows, for the metrics. */
export const janitorKinds = [
  "devices",
  "history_blocks",
  "history_users",
  "history_views",
  "delivery_chunks",
  "notifications",
  "idempotency_keys",
  "inbox",
  "kept_events",
] as const;
type JanitorKind = (typeof janitorKinds)[number];

interface Dependencies {
  readonly db: Database;
  readonly observer?: JanitorObserver<JanitorKind>;
  /** Days for which history and notifications are kept. */
  readonly historyRetentionDays: number;
  /** Days for which the ids of events are kept; 8 unless given. No event may come again afterwards. */
  readonly inboxRetentionDays?: number;
  /** Hours for which events are kept once they are delivered; 0 unless given. */
  readonly replayHours?: number;
}

const dayMs = 24 * 60 * 60 * 1000;

/** Rows that one transaction removes: few enough to stay well below the statement timeout. */
const batchSize = 5_000;
/** Notifications that one transaction removes; each may have some thousands of chunks. */
const notificationBatch = 100;

const device = names(devices);
const block = names(historyBlocks);
const key = names(idempotencyKeys);
const received = names(inbox);
const chunk = names(deliveryChunks);
const n = names(notifications, "n");

const removable = selection({ id: n.id });
const clock = selection({ now: computed(number, sql`floor(extract(epoch from now()) * 1000)::float8`) });
const lock = selection({
  isAcquired: computed(boolean, sql`pg_try_advisory_xact_lock(hashtext('push.janitor'))`),
});

/** What a batch has removed. */
interface Removed {
  readonly rows: Partial<Record<JanitorKind, number>>;
  /** Whether there may be more. */
  readonly isFull: boolean;
}

/** Removes a batch; undefined: it cannot, as a step before it has not ended. */
type Step = (tx: Database) => Promise<Removed | undefined>;

/** The steps of a round. They skip locked rows instead of waiting; the next round removes those. */
function stepsOf(
  nowMs: number,
  { historyRetentionDays, inboxRetentionDays = 8, replayHours = 0 }: Dependencies,
): Step[] {
  const now = new Date(nowMs).toISOString();
  const oldestKept = lowestId(Math.floor(nowMs - historyRetentionDays * dayMs));
  const entries = createEntryRemoval(oldestKept);
  const batch = sql`limit ${batchSize} for update skip locked`;
  const removed = (kind: JanitorKind, rows: number) => ({
    rows: { [kind]: rows },
    isFull: rows === batchSize,
  });
  const remove = async (kind: JanitorKind, tx: Database, statement: SQL) =>
    removed(kind, await rowCount(tx, statement));
  return [
    async (tx) => {
      const expired = sql`
        select ${device.id} as chosen_id from ${devices}
        where ${device.expiresAt} <= ${now}::timestamptz order by ${device.expiresAt} ${batch}`;
      return removed("devices", await removeDevices(tx, expired, "EXPIRED"));
    },
    async (tx) => {
      const { users, isFull } = await entries.forgetUsers(tx);
      return { rows: { history_users: users }, isFull };
    },
    async (tx) => {
      const removed = await entries.removeBlocks(tx);
      return removed && { rows: { history_blocks: removed.blocks }, isFull: removed.isFull };
    },
    async (tx) => {
      const { views, isFull } = await removeViews(tx, oldestKept);
      return { rows: { history_views: views }, isFull };
    },
    (tx) => removeNotifications(tx, oldestKept),
    (tx) =>
      remove(
        "idempotency_keys",
        tx,
        sql`
          with chosen as (
            select ${key.keyHash} as chosen_hash from ${idempotencyKeys}
            where ${key.expiresAt} <= ${now}::timestamptz order by ${key.expiresAt} ${batch}
          )
          delete from ${idempotencyKeys} using chosen where ${key.keyHash} = chosen_hash returning 1 as one`,
      ),
    (tx) =>
      remove(
        "inbox",
        tx,
        sql`
          with chosen as (
            select ${received.eventId} as chosen_id from ${inbox}
            where ${received.receivedAt} <= ${now}::timestamptz - ${inboxRetentionDays}::int * interval '1 day'
            order by ${received.receivedAt} ${batch}
          )
          delete from ${inbox} using chosen where ${received.eventId} = chosen_id returning 1 as one`,
      ),
    (tx) => remove("kept_events", tx, removeKept(keptEvents, replayHours, batch)),
  ];
}

/**
 * Removes finished notifications older than `oldestKept`: first their chunks, including dead letters, and the
 * notifications themselves once they have no chunks. A notification stays while a chunk of it is still to be sent,
 * such as a replayed dead letter, or while a user's history has an entry of it.
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
        and not exists (
          select from ${deliveryChunks}
          where ${ofNotification} and ${chunk.state} in ('PENDING', 'SENDING'))
      order by ${n.id} limit ${notificationBatch} for update skip locked`,
  );
  if (chosen.length === 0) return { rows: { notifications: 0, delivery_chunks: 0 }, isFull: false };
  const ids = sql`any(${arrayLiteral(chosen.map(({ id }) => id))}::uuid[])`;
  const chunks = await rowCount(
    tx,
    sql`
      with chosen as (
        select ${chunk.id} as chosen_id from ${deliveryChunks}
        where ${chunk.notificationId} = ${ids} and ${chunk.state} in ('DONE', 'DEAD')
        limit ${batchSize} for update skip locked
      )
      delete from ${deliveryChunks} using chosen where ${chunk.id} = chosen_id returning 1 as one`,
  );
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

/** The lowest id of a notification that was accepted at this moment: ids are UUIDv7. */
function lowestId(ms: number): string {
  const time = Math.max(0, ms).toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-0000-0000-000000000000`;
}

/**
 * One round: repeats each step until it has nothing left, another process holds the lock, or the process stops.
 * @throws what a step has thrown, once the steps after it had their turn; AggregateError if there were several
 */
export async function cleanUp(dependencies: Dependencies, stopping?: AbortSignal): Promise<void> {
  const { db, observer } = dependencies;
  const [time] = await rows(db, clock, sql`select ${clock}`);
  if (!time) throw new Error("the database returned no time");
  const errors: unknown[] = [];
  for (const step of stepsOf(time.now, dependencies)) {
    await repeat(step, dependencies, stopping).catch((err: unknown) => errors.push(err));
  }
  if (errors.length > 1) throw new AggregateError(errors, "several kinds of rows could not be removed");
  if (errors.length > 0) throw errors[0];
  if (!stopping?.aborted) observer?.roundEnded();
}

async function repeat(
  step: Step,
  { db, observer }: Dependencies,
  stopping: AbortSignal | undefined,
): Promise<void> {
  for (let isFull = true; isFull && !stopping?.aborted; ) {
    const removed = await db.transaction(async (tx) => {
      const [locked] = await rows(tx, lock, sql`select ${lock}`);
      return locked?.isAcquired ? step(tx) : undefined;
    });
    isFull = removed?.isFull ?? false;
    if (removed && observer) report(removed, observer);
  }
}

function report({ rows: removed, isFull }: Removed, observer: JanitorObserver<JanitorKind>): void {
  for (const kind of janitorKinds) {
    const count = removed[kind];
    if (count === undefined) continue;
    observer.cleaned(kind, count);
    if (!isFull) observer.caughtUp(kind);
  }
}

/** Runs rounds at an interval until stopped. A round that fails is logged; the next one comes as usual. */
export function startJanitor(dependencies: Dependencies & { logger: Logger; intervalSeconds: number }): Loop {
  const { logger, intervalSeconds } = dependencies;
  return every(
    intervalSeconds * 1000,
    (stopping) => cleanUp(dependencies, stopping),
    (err) => logger.warn({ err }, "The janitor could not finish its round and will try again"),
  );
}
