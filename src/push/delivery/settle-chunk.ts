/**
 * Stores the results of a chunk. While messages wait for their responses: the outcomes so far. At the chunk's end, in
 * one transaction: the counts of its messages, the next state of the devices that are left, and the end of its job.
 * Only the worker that took the chunk last can do so. It alone counts, and writes the whole counts. So it does no harm
 * to repeat a transaction whose commit was not seen: then nothing is new, and no user counts twice.
 */
import { sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean } from "../../platform/database/sql/readers.ts";
import { computed, prepared, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import { type Job, JobLostError, type Jobs } from "../../platform/messaging/jobs.ts";
import {
  type DeliveryJob,
  deliveryQueue,
  retryPriority,
  waitingForProvider,
  waitingForResponse,
} from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks } from "../schema.ts";
import { missingNotification, nothingLeft, type Part, partsAfter } from "./chunk-parts.ts";
import { type ChunkCounts, shareNotification, type TakenChunk } from "./chunk-repository.ts";
import {
  type Responses,
  recordDead,
  recordResponses,
  type StopLimits,
  type StoppedAt,
} from "./dead-reports.ts";
import type { NextTry } from "./next-try.ts";
import { lockPauses } from "./provider-pauses.ts";

/** What is stored of a chunk, whether it ends or not. */
interface StoredResult {
  readonly counts: ChunkCounts;
  /** The responses by which the provider is judged, and the users it reports dead; undefined: it is not believed. */
  readonly responses: Responses | undefined;
}

/** The outcomes of a chunk so far. */
interface PartialResult extends StoredResult {
  /** The devices without a final outcome. */
  readonly open: readonly number[];
  /** The devices that were not tried, which become a chunk of their own with this job; there may be none. */
  readonly rest: { readonly devices: readonly number[]; readonly jobId: string };
}

/** The results of a worker's attempt at a chunk. */
interface ChunkResult extends StoredResult {
  /** The devices that are still to be sent to, by when they are tried again. */
  readonly tries: readonly NextTry[];
}

/** The state of removals after results were stored. */
export interface Removals {
  /** Whether dead devices of the chunk are kept, as the removals of the provider are stopped. */
  readonly isHeld: boolean;
  /** The users who were judged when the removals were stopped, if this chunk did it. */
  readonly stoppedAt: StoppedAt | undefined;
}

export interface Settled extends Removals {
  /** Whether the chunk has ended, and no part of it waits elsewhere. */
  readonly isOver: boolean;
  /** Remaining devices that were dropped, because the notification was cancelled or has expired. */
  readonly dropped: number;
  /** The chunks whose devices were given up. */
  readonly dead: readonly {
    readonly chunkId: number;
    readonly devices: number;
    readonly reason: string | null;
  }[];
}

/** Where the results of a provider's chunks are stored. */
export interface ChunkStorage {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly provider: ProviderName;
  readonly limits: StopLimits;
}

/** The shortest wait for services that cannot be sent to, in milliseconds: other messages are probing them. */
const probedMs = 500;

/**
 * The result of a transaction that may have been committed although its commit was not seen. Tries of the same
 * transaction share one, so that a repeat reports what the try reported that was committed.
 */
export interface Attempted<Result> {
  result?: Result;
}

/**
 * Stores the outcomes so far. The devices without a final outcome stay in the chunk, with its job: if the process dies,
 * they alone are sent to again. The devices that were not tried wait for none of them.
 * @throws JobLostError if another worker has the chunk by now; then nothing is stored
 */
export async function storeOutcomes(
  { db, jobs, provider, limits }: ChunkStorage,
  job: Job<DeliveryJob>,
  chunk: TakenChunk,
  { counts, responses, open, rest }: PartialResult,
  attempted: Attempted<Removals> = {},
): Promise<Removals> {
  const { retries, reason, isRetry } = chunk;
  const kept: Part = {
    ...nothingLeft,
    state: "SENDING",
    jobId: job.id,
    devices: open,
    retries,
    reason,
    isRetry,
  };
  const untried: Part = { ...kept, state: "PENDING", ...rest };
  return db.transaction(async (tx) => {
    const isToSplit = rest.devices.length > 0 && (await hasDevices(tx, chunk, rest.devices));
    if (isToSplit) {
      const data: DeliveryJob = { chunkId: await splitChunk(tx, chunk, untried) };
      await jobs.enqueue(tx, deliveryQueue(provider), [{ id: rest.jobId, data, priority: job.priority }]);
    }
    const isNew = await writeChunk(tx, chunk, counts, kept, isToSplit ? rest.devices.length : 0);
    const removals = await recordAll(tx, provider, { responses, isNew }, limits);
    // A stop of removals that this transaction made before is found as one that is there already.
    const stoppedAt = removals.stoppedAt ?? attempted.result?.stoppedAt;
    attempted.result = { ...removals, stoppedAt };
    return attempted.result;
  });
}

/** Whether the chunk still has these devices. Not if the transaction is repeated and was committed before. */
async function hasDevices(
  tx: Database,
  { id, fence }: TakenChunk,
  devices: readonly number[],
): Promise<boolean> {
  const chunk = names(deliveryChunks);
  const found = await rowCount(
    tx,
    sql`
      select 1 as one from ${deliveryChunks}
      where ${chunk.id} = ${id}::bigint and ${chunk.fence} = ${fence}::int and ${chunk.state} = 'SENDING'
        and ${chunk.deviceIds} @> ${arrayLiteral(devices.map(String))}::bigint[]
      for update`,
  );
  return found > 0;
}

/**
 * Stores the last results, and ends the job. The chunk keeps the devices that are tried next; devices that are tried at
 * another time, or are given up, become a chunk of their own.
 * @throws JobLostError if another worker has the chunk or its job by now; then nothing is stored
 */
export async function settleChunk(
  { db, jobs, provider, limits }: ChunkStorage,
  job: Job<DeliveryJob>,
  chunk: TakenChunk,
  { counts, responses, tries }: ChunkResult,
  attempted: Attempted<Settled> = {},
): Promise<Settled> {
  const queue = deliveryQueue(provider);
  // Reports of dead devices are written to the provider's row: a lock that only shares it could not become their lock.
  const lock = responses?.dead.length ? "write" : "share";

  async function enqueuePart(tx: Database, part: Part & { readonly chunkId: number }): Promise<void> {
    const { chunkId, jobId, services, afterMs, isRetry, endsWithResponse } = part;
    if (jobId === null) return;
    const isClosed = services.length > 0;
    const waitMs = isClosed ? Math.max(probedMs, await lockPauses(tx, provider, services, lock)) : afterMs;
    const waits = isClosed ? waitingForProvider : endsWithResponse && waitingForResponse;
    const data: DeliveryJob = { chunkId, ...waits };
    const priority = isRetry ? Math.min(job.priority, retryPriority) : job.priority;
    await jobs.enqueue(tx, queue, [{ id: jobId, data, priority, startAfterSeconds: waitMs / 1000 }]);
  }

  return db.transaction(async (tx) => {
    if (attempted.result && (await isSettled(tx, chunk, counts))) return attempted.result;
    const notification =
      tries.length > 0
        ? ((await shareNotification(tx, chunk.notification.id)) ?? missingNotification)
        : undefined;
    const ended: Part = { ...nothingLeft, retries: chunk.retries, reason: chunk.reason };
    const [first = ended, ...others] = partsAfter(chunk, tries, notification);
    const parts: (Part & { readonly chunkId: number })[] = [{ chunkId: chunk.id, ...first }];
    // Before the chunk is written: a chunk that is split off takes over the moment of the first attempt.
    for (const part of others) parts.push({ chunkId: await splitChunk(tx, chunk, part), ...part });
    const moved = others.reduce((sum, { devices }) => sum + devices.length, 0);
    const isNew = await writeChunk(tx, chunk, counts, first, moved);
    for (const part of parts) await enqueuePart(tx, part);
    await jobs.complete(tx, queue, job);
    // Last, since all workers of a provider meet in its row if the removals are stopped.
    const removals = await recordAll(tx, provider, { responses, isNew }, limits);
    attempted.result = {
      isOver: parts.every(({ state }) => state === "DONE" || state === "DEAD"),
      dropped: first.state === "DONE" ? first.devices.length : 0,
      dead: deadParts(parts),
      ...removals,
    };
    return attempted.result;
  });
}

/** Whether these results of this worker are stored: a worker that took the chunk later would have raised its fence. */
async function isSettled(
  tx: Database,
  { id, fence }: TakenChunk,
  { sent, failed }: ChunkCounts,
): Promise<boolean> {
  const chunk = names(deliveryChunks);
  const found = await rowCount(
    tx,
    sql`
      select 1 as one from ${deliveryChunks}
      where ${chunk.id} = ${id}::bigint and ${chunk.fence} = ${fence}::int and ${chunk.state} <> 'SENDING'
        and ${chunk.sent} = ${sent}::int and ${chunk.failed} = ${failed}::int`,
  );
  return found > 0;
}

async function recordAll(
  tx: Database,
  provider: ProviderName,
  { responses, isNew }: { readonly responses: Responses | undefined; readonly isNew: boolean },
  limits: StopLimits,
): Promise<Removals> {
  if (responses && isNew) await recordResponses(tx, provider, responses);
  return responses?.dead.length
    ? recordDead(tx, provider, responses.dead, limits)
    : { isHeld: false, stoppedAt: undefined };
}

function deadParts(parts: readonly (Part & { readonly chunkId: number })[]): Settled["dead"] {
  const dead = parts.filter(({ state }) => state === "DEAD");
  return dead.map(({ chunkId, devices, reason }) => ({ chunkId, devices: devices.length, reason }));
}

const writeParameters = [
  "id",
  "fence",
  "state",
  "left",
  "moved",
  "sent",
  "failed",
  "dropped",
  "dead",
  "retries",
  "reason",
  "startsAnew",
  "jobId",
  "failures",
  "isRetry",
] as const;

const c = names(deliveryChunks, "c");
/** The chunk as it was before it is written. */
const b = names(deliveryChunks, "b");
const written = selection({
  hasNewOutcomes: computed(boolean, sql`(${c.sent}, ${c.failed}) <> (${b.sent}, ${b.failed})`),
});

const updateChunk = prepared(writeParameters, (parameter) => {
  const chunk = names(deliveryChunks);
  return sql`
    update ${deliveryChunks} c
    set ${chunk.state} = ${parameter.state}, ${chunk.deviceIds} = ${parameter.left}::bigint[],
      ${chunk.planned} = ${c.planned} - ${parameter.moved}::int, ${chunk.sent} = ${parameter.sent}::int,
      ${chunk.failed} = ${parameter.failed}::int, ${chunk.dropped} = ${parameter.dropped}::int,
      ${chunk.dead} = ${parameter.dead}::int, ${chunk.failures} = ${parameter.failures}::jsonb,
      ${chunk.retries} = ${parameter.retries}::int, ${chunk.reason} = ${parameter.reason}::text,
      ${chunk.jobId} = ${parameter.jobId}::uuid, ${chunk.isRetry} = ${parameter.isRetry}::boolean,
      ${chunk.firstAttemptAt} = case when ${parameter.startsAnew}::boolean then null
        else ${c.firstAttemptAt} end,
      ${chunk.updatedAt} = now()
    from (
      select ${chunk.id}, ${chunk.sent}, ${chunk.failed} from ${deliveryChunks}
      where ${chunk.id} = ${parameter.id}::bigint and ${chunk.fence} = ${parameter.fence}::int
        and ${chunk.state} = 'SENDING'
      for update
    ) b
    where ${c.id} = ${b.id}
    returning ${written}`;
});

/** Whether the time in which the devices fail begins anew, as they wait for something else than their own next try. */
function startsAnew({ state, jobId, services }: Part): boolean {
  return (state === "PENDING" && jobId === null) || services.length > 0;
}

/**
 * Writes the chunk with the devices that it keeps.
 * @param moved how many devices were split off, which it no longer counts
 * @returns whether messages have got a final outcome since it was written last. None has if the transaction is repeated
 *   and was committed before
 */
async function writeChunk(
  tx: Database,
  chunk: TakenChunk,
  { sent, failed, dropped, dead, failures }: ChunkCounts,
  kept: Part,
  moved: number,
): Promise<boolean> {
  const isDropped = kept.state === "DONE";
  const [found] = await rows(
    tx,
    written,
    updateChunk({
      id: chunk.id,
      fence: chunk.fence,
      state: kept.state,
      left: arrayLiteral(isDropped ? [] : kept.devices.map(String)),
      moved,
      sent,
      failed,
      dropped: dropped + (isDropped ? kept.devices.length : 0),
      dead,
      retries: kept.retries,
      reason: kept.reason,
      startsAnew: startsAnew(kept),
      jobId: kept.jobId,
      isRetry: kept.isRetry,
      failures: JSON.stringify(Object.fromEntries(failures)),
    }),
  );
  if (!found) throw new JobLostError(`another worker has taken chunk ${chunk.id}`);
  return found.hasNewOutcomes;
}

const madeChunk = selection({ id: names(deliveryChunks).id });

/** Makes a chunk of some of the chunk's devices. @returns its id */
async function splitChunk(tx: Database, { id }: TakenChunk, part: Part): Promise<number> {
  const chunk = names(deliveryChunks);
  const ids = arrayLiteral(part.devices.map(String));
  const [made] = await rows(
    tx,
    madeChunk,
    sql`
      insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.state},
        ${chunk.deviceIds}, ${chunk.planned}, ${chunk.sent}, ${chunk.failed}, ${chunk.dropped}, ${chunk.dead},
        ${chunk.fence}, ${chunk.retries}, ${chunk.firstAttemptAt}, ${chunk.reason}, ${chunk.jobId}, ${chunk.isRetry},
        ${chunk.updatedAt})
      select ${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${part.state}, ${ids}::bigint[],
        ${part.devices.length}::int, 0, 0, 0, 0, 0, ${part.retries}::int,
        case when ${startsAnew(part)}::boolean then null else ${chunk.firstAttemptAt} end, ${part.reason}::text, ${part.jobId}::uuid,
        ${part.isRetry}::boolean, now()
      from ${deliveryChunks} where ${chunk.id} = ${id}::bigint
      returning ${madeChunk}`,
  );
  if (!made) throw new JobLostError(`chunk ${id} is gone`);
  return made.id;
}
