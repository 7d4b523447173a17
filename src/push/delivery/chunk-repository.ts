/**
 * Chunks as a worker takes them: the statements that take a chunk, load its devices, and handle a chunk that
 * cannot be taken. The database's clock, which all workers share, decides whether a notification or a device has
 * expired.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import {
  boolean,
  integer,
  number,
  type Reader,
  UnexpectedValueError,
} from "../../platform/database/readers.ts";
import { computed, prepared, rawRows, rows, selection } from "../../platform/database/statements.ts";
import type { Job } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, lastPriority } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, devices, notifications, providerPaces } from "../schema.ts";
import { lockPauses, shortenPause, wholeProvider } from "./provider-pauses.ts";

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

/** A chunk that this worker has taken. `attempt` proves it: each take raises it by one. */
export interface TakenChunk {
  readonly id: number;
  readonly attempt: number;
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
  /** Its devices were tried before, so it comes after all that were not. */
  readonly comesLast: boolean;
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

/** The result for a chunk that is not sent now. */
export interface ReturnedChunk {
  readonly notificationId: string;
  /** Devices that were dropped with the chunk; undefined: the chunk did not end here. */
  readonly dropped: number | undefined;
  /** Milliseconds until the chunk's next job; undefined: it needs no job. */
  readonly requeueInMs: number | undefined;
}

const millis = (moment: SQL) => sql`(extract(epoch from ${moment}) * 1000)::float8`;

const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const d = names(devices, "d");
const n = names(notifications, "n");
const p = names(providerPaces, "p");

/** What of a job decides whether it may take a chunk. */
type ChunkJob = Pick<Job<DeliveryJob>, "id" | "retryCount" | "priority" | "data">;

/**
 * Whether a try of a job may take the chunk: the chunk names the job, and no other try of it has the chunk, or only
 * an earlier one, whose worker has died. Any other job of the chunk is left over from before a pause or a retry.
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
  attempt: c.attempt,
  devices: computed(integer, sql`cardinality(${c.deviceIds})`),
  retries: c.retries,
  reason: c.reason,
  ageMs: computed(number, millis(sql`now() - ${c.firstAttemptAt}`)),
  comesLast: c.comesLast,
});
const chunkNotification = selection({
  notificationId: n.id,
  title: n.title,
  message: n.message,
  image: n.image,
  expiresAt: computed(number, millis(n.expiresAt)),
  acceptedAt: computed(number, millis(n.acceptedAt)),
});
/** The provider's row; nulls if the provider has no row yet. */
const providerRate = selection({ share: p.share });
const isProvider = (provider: unknown) =>
  sql`${p.provider} = ${provider} and ${p.service} = ${sql.raw(`'${wholeProvider}'`)}`;

const updateTaken = prepared(
  ["provider", "id", "jobId", "jobTry"],
  ({ provider, id, jobId, jobTry }) => sql`
    update ${deliveryChunks} c
    set ${chunk.state} = 'SENDING', ${chunk.jobTry} = ${jobTry}::int, ${chunk.attempt} = ${c.attempt} + 1,
      ${chunk.firstAttemptAt} = coalesce(${c.firstAttemptAt}, now()), ${chunk.updatedAt} = now()
    from ${notifications} n left join ${providerPaces} p on ${isProvider(provider)}
    where ${c.id} = ${id}::bigint and ${c.provider} = ${provider} and ${mayTake(c, jobId, jobTry)}
      and ${n.id} = ${c.notificationId} and ${n.state} not in ('PAUSED', 'CANCELLED') and ${n.expiresAt} > now()
      and (${p.pausedUntil} is null or ${p.pausedUntil} <= now())
    returning ${takenChunk}, ${takenCounts}, ${chunkNotification}, ${providerRate}`,
);

/**
 * Takes the job's chunk, if it is to be sent now. The worker that took the chunk before can no longer write it.
 *
 * The notification needs no lock: if it is paused or cancelled at this moment, the worker notices when it checks the
 * notification's state (`watch.ts`).
 */
export async function takeChunk(
  db: Database,
  provider: ProviderName,
  { id: jobId, retryCount: jobTry, priority, data }: ChunkJob,
): Promise<TakenChunk | undefined> {
  const asOf = performance.now();
  const [row] = await rawRows(db, updateTaken({ provider, id: data.chunkId, jobId, jobTry }));
  if (!row) return undefined;
  const { notificationId, ...notification } = chunkNotification.read(row);
  const rate = providerRate.readJoined(row, "share") ?? { share: 1 };
  const taken = takenChunk.read(row);
  return {
    ...taken,
    // Of chunks that an older version has written, only their job's priority says so.
    comesLast: taken.comesLast || priority <= lastPriority,
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
        select ${device.id}, ${device.userId}, ${device.token}, ${millis(device.renewedAt)} as renewed from ${devices}
        where ${device.id} = chosen_id and ${device.provider} = ${provider} and ${device.expiresAt} > now() offset 0
      ) d
    where ${c.id} = ${id}::bigint
    order by nth`;
});

/**
 * The chunk's devices that are still registered with the provider and have not expired, in the chunk's order: those
 * that were refused come last. `offset 0` makes PostgreSQL
 * look up each device by its id: otherwise a query plan made while the table was small would read the whole table,
 * and PostgreSQL would keep that plan while the table grows.
 */
export async function loadDevices(
  db: Database,
  provider: ProviderName,
  id: number,
): Promise<Omit<DeliveryDevice, "service">[]> {
  return rows(db, foundDevice, selectDevices({ provider, id }));
}

const heldNotification = selection({
  id: n.id,
  state: n.state,
  isExpired: computed(boolean, sql`${n.expiresAt} <= now()`),
});

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
  const [row] = await rows(
    tx,
    heldNotification,
    sql`
      select ${heldNotification}
      from ${notifications} n
      where ${n.id} = (select ${c.notificationId} from ${deliveryChunks} c where ${c.id} = ${id}::bigint)
      for share of n`,
  );
  if (!row) return undefined;
  const openChunk = selection({ devices: computed(integer, sql`cardinality(${chunk.deviceIds})`) });
  const [refused] = await rows(
    tx,
    openChunk,
    sql`
      select ${openChunk} from ${deliveryChunks}
      where ${chunk.id} = ${id}::bigint and ${mayTake(chunk, jobId, jobTry)} for update`,
  );
  if (!refused) return undefined;
  const { id: notificationId, state, isExpired } = row;
  if (state === "CANCELLED" || isExpired) {
    await tx.execute(sql`
      update ${deliveryChunks}
      set ${chunk.state} = 'DONE', ${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}),
        ${chunk.deviceIds} = '{}', ${chunk.jobId} = null, ${chunk.updatedAt} = now()
      where ${chunk.id} = ${id}::bigint`);
    return { notificationId, dropped: refused.devices, requeueInMs: undefined };
  }
  const isPaused = state === "PAUSED";
  // Resuming begins the count of retries anew. What waits for its provider does not fail meanwhile.
  await tx.execute(sql`
    update ${deliveryChunks}
    set ${chunk.state} = 'PENDING', ${chunk.jobId} = ${isPaused ? null : nextJobId}::uuid,
      ${chunk.firstAttemptAt} = null, ${chunk.updatedAt} = now()${isPaused ? sql`, ${chunk.retries} = 0` : sql``}
    where ${chunk.id} = ${id}::bigint`);
  const requeueInMs = isPaused ? undefined : await lockPauses(tx, provider, [wholeProvider], "share");
  return { notificationId, dropped: undefined, requeueInMs };
}
