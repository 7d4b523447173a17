/**
 * Chunks as a worker takes them: the statements that take a chunk, load its devices, and handle a chunk that
 * cannot be taken. The database's clock, which all workers share, decides whether a notification or a device has
 * expired.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import {
  boolean,
  integer,
  number,
  type Reader,
  UnexpectedValueError,
} from "../../platform/database/sql/readers.ts";
import {
  computed,
  epochMs,
  prepared,
  type RowOf,
  rawRows,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import type { Job } from "../../platform/messaging/jobs.ts";
import type { DeliveryJob } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, devices, notifications, providerStates } from "../schema.ts";
import { isWholeProvider, lockPauses, shortenPause, wholeProvider } from "./provider-pauses.ts";

/** What became of a chunk's devices, over all attempts. */
export interface ChunkCounts {
  readonly sent: number;
  /** Includes the dead devices. */
  readonly failed: number;
  readonly dropped: number;
  readonly dead: number;
  /** Devices that failed, by reason, the dead ones among them. */
  readonly failures: ReadonlyMap<string, number>;
}

/** A chunk that this worker has taken. */
export interface TakenChunk {
  readonly id: number;
  /** The fencing token: each take raises it by one, and only the worker with the newest may write the chunk. */
  readonly fence: number;
  /** When taking it began, by `performance.now()`: what is known of its notification is not older. */
  readonly asOf: number;
  /** Devices left to send to when the chunk was taken. */
  readonly devices: number;
  /** What became of its other devices before. */
  readonly counts: ChunkCounts;
  readonly retries: number;
  /** Why the chunk was retried before; null if it was not. */
  readonly reason: string | null;
  /** Milliseconds since the chunk's first attempt after its last wait for the provider. */
  readonly ageMs: number;
  /** Whether its devices were tried before. Then it comes after the chunks whose devices were not. */
  readonly isRetry: boolean;
  readonly notification: {
    readonly id: string;
    readonly title: string;
    readonly message: string;
    readonly image: string | null;
    /** Milliseconds since the epoch. */
    readonly expiresAt: number;
    readonly acceptedAt: number;
  };
  /** Share of the rate limit that the provider gets at the moment, up to 1. */
  readonly share: number;
}

/** A device that can be sent to. */
export interface DeliveryDevice {
  readonly id: number;
  readonly userId: string;
  readonly token: string;
  /** The service of the provider that the token's messages go to. */
  readonly service: string;
  /** Milliseconds since the epoch. */
  readonly renewedAt: number;
}

/** A chunk that could not be taken, and what has become of it. */
export interface ReturnedChunk {
  readonly notificationId: string;
  /** Devices that were dropped with the chunk; undefined: the chunk did not end here. */
  readonly dropped: number | undefined;
  /** Milliseconds until the chunk's next job; undefined: it needs no job. */
  readonly requeueInMs: number | undefined;
}

const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const d = names(devices, "d");
const n = names(notifications, "n");
const p = names(providerStates, "p");

/** The members of a job by which it is decided whether the job may take a chunk. */
type ChunkJob = Pick<Job<DeliveryJob>, "id" | "retryCount" | "data">;

/**
 * Whether a try of a job may take the chunk: the chunk names the job, and no try of the job has the chunk, or only an
 * earlier one, whose worker has died. Any other job of the chunk is left over from before a pause or a retry.
 */
function mayTake(c: typeof chunk, jobId: unknown, jobTry: unknown): SQL {
  return sql`(${c.jobId} = ${jobId}::uuid and (${c.state} = 'PENDING'
    or ${c.state} = 'SENDING' and ${c.jobTry} < ${jobTry}::int))`;
}

/** How many devices failed, by reason. */
const reasons: Reader<ReadonlyMap<string, number>> = {
  read(value) {
    if (typeof value !== "object" || value === null) throw new UnexpectedValueError("an object", value);
    return new Map(Object.entries(value).map(([reason, count]) => [reason, integer.read(count)]));
  },
};

const takenCounts = selection({
  sent: c.sent,
  failed: c.failed,
  dropped: c.dropped,
  dead: c.dead,
  failures: computed(reasons, c.failures),
});
const takenChunk = selection({
  id: c.id,
  fence: c.fence,
  devices: computed(integer, sql`cardinality(${c.deviceIds})`),
  retries: c.retries,
  reason: c.reason,
  ageMs: computed(number, epochMs(sql`now() - ${c.firstAttemptAt}`)),
  isRetry: c.isRetry,
});
const chunkNotification = selection({
  notificationId: n.id,
  title: n.title,
  message: n.message,
  image: n.image,
  expiresAt: computed(number, epochMs(n.expiresAt)),
  acceptedAt: computed(number, epochMs(n.acceptedAt)),
});
/** The provider's row; nulls if the provider has no row yet. */
const providerRate = selection({ share: p.share });

const updateTaken = prepared(
  ["provider", "id", "jobId", "jobTry"],
  ({ provider, id, jobId, jobTry }) => sql`
    update ${deliveryChunks} c
    set ${chunk.state} = 'SENDING', ${chunk.jobTry} = ${jobTry}::int, ${chunk.fence} = ${c.fence} + 1,
      ${chunk.firstAttemptAt} = coalesce(${c.firstAttemptAt}, now()), ${chunk.updatedAt} = now()
    from ${notifications} n left join ${providerStates} p on ${isWholeProvider(p, provider)}
    where ${c.id} = ${id}::bigint and ${c.provider} = ${provider} and ${mayTake(c, jobId, jobTry)}
      and ${n.id} = ${c.notificationId} and ${n.state} not in ('PAUSED', 'CANCELLED') and ${n.expiresAt} > now()
      and (${p.pausedUntil} is null or ${p.pausedUntil} <= now())
    returning ${takenChunk}, ${takenCounts}, ${chunkNotification}, ${providerRate}`,
);

/**
 * Takes the job's chunk, if it is to be sent now. The worker that took the chunk before can no longer write it.
 *
 * The notification needs no lock: if it is paused or cancelled at this moment, the worker notices when it checks the
 * notification's state (`sendability-check.ts`).
 */
export async function takeChunk(
  db: Database,
  provider: ProviderName,
  { id: jobId, retryCount: jobTry, data }: ChunkJob,
): Promise<TakenChunk | undefined> {
  const asOf = performance.now();
  const [row] = await rawRows(db, updateTaken({ provider, id: data.chunkId, jobId, jobTry }));
  if (!row) return undefined;
  const { notificationId, ...notification } = chunkNotification.read(row);
  const rate = providerRate.readJoined(row, "share") ?? { share: 1 };
  return {
    ...takenChunk.read(row),
    asOf,
    counts: takenCounts.read(row),
    notification: { id: notificationId, ...notification },
    ...rate,
  };
}

const foundDevice = selection({
  id: d.id,
  userId: d.userId,
  token: d.token,
  renewedAt: computed(number, sql`d.renewed`),
});

const selectDevices = prepared(["provider", "id"], ({ provider, id }) => {
  const device = names(devices);
  return sql`
    select ${foundDevice}
    from ${deliveryChunks} c cross join unnest(${c.deviceIds}) with ordinality as chosen (chosen_id, nth)
      cross join lateral (
        select ${device.id}, ${device.userId}, ${device.token}, ${epochMs(device.renewedAt)} as renewed from ${devices}
        where ${device.id} = chosen_id and ${device.provider} = ${provider} and ${device.expiresAt} > now() offset 0
      ) d
    where ${c.id} = ${id}::bigint
    order by nth`;
});

/**
 * The chunk's devices that are still registered with the provider, by the users for whom they were planned, and have
 * not expired, in the chunk's order: those that were refused come last. A device that changes its user gets another
 * id. `offset 0` makes PostgreSQL look up each device by its id. Otherwise a query plan made while the table was small
 * would read the whole table, and PostgreSQL would keep that plan while the table grows.
 */
export async function loadDevices(
  db: Database,
  provider: ProviderName,
  id: number,
): Promise<Omit<DeliveryDevice, "service">[]> {
  return rows(db, foundDevice, selectDevices({ provider, id }));
}

const notification = names(notifications);
const sharedFields = {
  state: notification.state,
  isExpired: computed(boolean, sql`${notification.expiresAt} <= now()`),
};
const sharedNotification = selection(sharedFields);

const selectShared = prepared(
  ["id"],
  ({ id }) =>
    sql`select ${sharedNotification} from ${notifications} where ${notification.id} = ${id}::uuid for share`,
);

/** The state of a notification that is locked. */
export type SharedNotification = RowOf<typeof sharedFields>;

/**
 * Keeps the notification from being paused, resumed or cancelled until the transaction ends.
 * @returns undefined if there is no such notification
 */
export async function shareNotification(tx: Database, id: string): Promise<SharedNotification | undefined> {
  const [row] = await rows(tx, sharedNotification, selectShared({ id }));
  return row;
}

const chunkOwner = selection({ notificationId: chunk.notificationId });
const openChunk = selection({ devices: computed(integer, sql`cardinality(${chunk.deviceIds})`) });

/**
 * Handles a chunk that could not be taken, in the transaction that ends its job. The chunk is parked, without a job,
 * if its notification is paused, and dropped if the notification is cancelled or expired. Otherwise it gets a new job
 * for the time when the provider's pause is over.
 * @param nextJobId the id of that new job
 * @returns undefined if there is nothing to do: the chunk has ended, or belongs to another job
 */
export async function returnChunk(
  tx: Database,
  provider: ProviderName,
  { id: jobId, retryCount: jobTry, data: { chunkId: id } }: ChunkJob,
  nextJobId: string,
): Promise<ReturnedChunk | undefined> {
  await shortenPause(tx, provider);
  const [owner] = await rows(
    tx,
    chunkOwner,
    sql`select ${chunkOwner} from ${deliveryChunks} where ${chunk.id} = ${id}::bigint`,
  );
  if (!owner) return undefined;
  const { notificationId } = owner;
  const notification = await shareNotification(tx, notificationId);
  if (!notification) return undefined;
  const [returned] = await rows(
    tx,
    openChunk,
    sql`
      select ${openChunk} from ${deliveryChunks}
      where ${chunk.id} = ${id}::bigint and ${mayTake(chunk, jobId, jobTry)} for update`,
  );
  if (!returned) return undefined;
  const { state, isExpired } = notification;
  if (state === "CANCELLED" || isExpired) {
    await tx.execute(sql`
      update ${deliveryChunks}
      set ${chunk.state} = 'DONE', ${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}),
        ${chunk.deviceIds} = '{}', ${chunk.jobId} = null, ${chunk.updatedAt} = now()
      where ${chunk.id} = ${id}::bigint`);
    return { notificationId, dropped: returned.devices, requeueInMs: undefined };
  }
  const isPaused = state === "PAUSED";
  // Resuming begins the count of retries anew. A chunk that waits for its provider does not fail meanwhile.
  await tx.execute(sql`
    update ${deliveryChunks}
    set ${chunk.state} = 'PENDING', ${chunk.jobId} = ${isPaused ? null : nextJobId}::uuid,
      ${chunk.firstAttemptAt} = null, ${chunk.updatedAt} = now()${isPaused ? sql`, ${chunk.retries} = 0` : sql``}
    where ${chunk.id} = ${id}::bigint`);
  const requeueInMs = isPaused ? undefined : await lockPauses(tx, provider, [wholeProvider], "share");
  return { notificationId, dropped: undefined, requeueInMs };
}
