/**
 * Stores the results of a chunk in one transaction: the counts of its messages, the next state of the devices that
 * are left, and the end of its job. Only the worker that took the chunk last can do so.
 */
import { randomUUID } from "node:crypto";
import { type Placeholder, type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean } from "../../platform/database/readers.ts";
import {
  computed,
  prepared,
  type RowOf,
  rowCount,
  rows,
  selection,
} from "../../platform/database/statements.ts";
import { type Job, JobLostError, type Jobs } from "../../platform/messaging/jobs.ts";
import { type DeliveryJob, deliveryQueue, waitingForProvider } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";
import type { TakenChunk } from "./chunk-repository.ts";
import { type Answers, recordAnswers, recordDead, type StopLimits, type StoppedAt } from "./dead-reports.ts";
import type { NextTry } from "./next-try.ts";
import { lockPauses } from "./provider-pauses.ts";

/** The results of a worker's attempt at a chunk. */
export interface ChunkResult {
  readonly sent: number;
  /** Includes the dead devices. */
  readonly failed: number;
  readonly dropped: number;
  readonly dead: number;
  /** Devices that failed, by reason, the dead ones among them. */
  readonly failures: ReadonlyMap<string, number>;
  /** What the provider is judged by, and whom it reports dead; undefined: it is not to be believed. */
  readonly answers: Answers | undefined;
  /** The devices that are still to be sent to, by when they are tried again. */
  readonly tries: readonly NextTry[];
}

export interface Settled {
  /** Whether the chunk has ended, and no part of it waits elsewhere. */
  readonly isOver: boolean;
  /** Remaining devices that were dropped, because the notification was cancelled or has expired. */
  readonly dropped: number;
  /** Whether dead devices of the chunk are kept, as the removals of the provider are stopped. */
  readonly isHeld: boolean;
  /** By what the removals were stopped, if this chunk did it. */
  readonly stoppedAt: StoppedAt | undefined;
  /** The chunk whose devices were given up, if any were. */
  readonly dead:
    | { readonly chunkId: number; readonly devices: number; readonly reason: string | null }
    | undefined;
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "complete" | "enqueue">;
  readonly provider: ProviderName;
  readonly limits: StopLimits;
}

/** `PENDING`: the devices wait. `DONE`, `DEAD`: they do not. */
type SettledState = "PENDING" | "DONE" | "DEAD";

/** Devices that go on together, as a chunk. */
interface Part extends NextTry {
  readonly state: SettledState;
  /** The job that may take the chunk; null: it has ended, or is parked until its notification is resumed. */
  readonly jobId: string | null;
}

/** The priority of what comes after everything that has not been tried. */
const lastPriority = -2_000_000;
/** The shortest wait for services that cannot be sent to, in milliseconds: other messages are probing them. */
const probedMs = 500;

/**
 * The chunk keeps what is tried next; what is tried at another time, or is given up, becomes a chunk of its own.
 * @throws JobLostError if another worker has the chunk or its job by now; then nothing is stored
 */
export async function settleChunk(
  { db, jobs, provider, limits }: Dependencies,
  job: Job<DeliveryJob>,
  chunk: TakenChunk,
  result: ChunkResult,
): Promise<Settled> {
  const { answers, tries } = result;
  const queue = deliveryQueue(provider);

  async function enqueuePart(tx: Database, part: Part & { readonly chunkId: number }): Promise<void> {
    const { chunkId, jobId, services, afterMs, isLast } = part;
    if (jobId === null) return;
    const isClosed = services.length > 0;
    const waitMs = isClosed ? Math.max(probedMs, await lockPauses(tx, provider, services)) : afterMs;
    const data: DeliveryJob = { chunkId, ...(isClosed && waitingForProvider) };
    const priority = isLast ? lastPriority : job.priority;
    await jobs.enqueue(tx, queue, [{ id: jobId, data, priority, startAfterSeconds: waitMs / 1000 }]);
  }

  return db.transaction(async (tx) => {
    const notification = tries.length > 0 ? await lockNotification(tx, chunk.notification.id) : undefined;
    const ended: Part = { ...nothingLeft, retries: chunk.retries, reason: chunk.reason };
    const [first = ended, ...others] = partsAfter(tries, notification);
    await writeChunk(tx, chunk, result, first, others);
    const parts = [{ chunkId: chunk.id, ...first }];
    for (const part of others) parts.push({ chunkId: await splitChunk(tx, chunk, part), ...part });
    for (const part of parts) await enqueuePart(tx, part);
    await jobs.complete(tx, queue, job);
    // Last, since all workers of a provider meet in its row if the removals are stopped.
    if (answers) await recordAnswers(tx, provider, answers);
    const removals = answers?.dead.length
      ? await recordDead(tx, provider, answers.dead, limits)
      : { isHeld: false, stoppedAt: undefined };
    return {
      isOver: parts.every(({ state }) => state === "DONE" || state === "DEAD"),
      dropped: first.state === "DONE" ? first.devices.length : 0,
      dead: deadPart(parts),
      ...removals,
    };
  });
}

function deadPart(parts: readonly (Part & { readonly chunkId: number })[]): Settled["dead"] {
  const dead = parts.find(({ state }) => state === "DEAD");
  return dead && { chunkId: dead.chunkId, devices: dead.devices.length, reason: dead.reason };
}

const nothingLeft: Part = {
  state: "DONE",
  jobId: null,
  ...{ devices: [], afterMs: 0, services: [], isLast: false, retries: 0, reason: null, giveUp: false },
};

const notification = names(notifications);
const lockedFields = {
  state: notification.state,
  isExpired: computed(boolean, sql`${notification.expiresAt} <= now()`),
};
const locked = selection(lockedFields);
type LockedNotification = RowOf<typeof lockedFields>;

const selectLocked = prepared(
  ["id"],
  ({ id }) => sql`select ${locked} from ${notifications} where ${notification.id} = ${id}::uuid for share`,
);

/** Keeps the notification from being paused, resumed or cancelled until the transaction ends. */
async function lockNotification(tx: Database, id: string): Promise<LockedNotification> {
  const [row] = await rows(tx, locked, selectLocked({ id }));
  // A chunk whose notification is missing is treated as cancelled.
  return row ?? { state: "CANCELLED", isExpired: true };
}

/** What becomes of the devices that are left. One part if the notification has ended or is paused: then it is parked. */
function partsAfter(tries: readonly NextTry[], notification: LockedNotification | undefined): Part[] {
  if (tries.length === 0 || !notification) return [];
  const devices = tries.flatMap((next) => next.devices);
  if (notification.state === "CANCELLED" || notification.isExpired) return [{ ...nothingLeft, devices }];
  const reason = tries.findLast((next) => next.reason !== null)?.reason ?? null;
  if (notification.state === "PAUSED") return [{ ...nothingLeft, state: "PENDING", devices, reason }];
  return tries.map((next) =>
    next.giveUp
      ? { ...next, state: "DEAD", jobId: null }
      : { ...next, state: "PENDING", jobId: randomUUID() },
  );
}

const writeParameters = [
  "id",
  "attempt",
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
] as const;

const updateSettled = prepared(writeParameters, (parameter) => {
  const chunk = names(deliveryChunks);
  const increased = (column: SQL, count: Placeholder) => sql`${column} = ${column} + ${count}::int`;
  return sql`
    update ${deliveryChunks}
    set ${chunk.state} = ${parameter.state}, ${chunk.deviceIds} = ${parameter.left}::bigint[],
      ${chunk.planned} = ${chunk.planned} - ${parameter.moved}::int,
      ${increased(chunk.sent, parameter.sent)}, ${increased(chunk.failed, parameter.failed)},
      ${increased(chunk.dropped, parameter.dropped)}, ${increased(chunk.dead, parameter.dead)},
      ${chunk.retries} = ${parameter.retries}::int, ${chunk.reason} = ${parameter.reason}::text,
      ${chunk.jobId} = ${parameter.jobId}::uuid,
      ${chunk.failures} = case when ${parameter.failures}::jsonb = '{}' then ${chunk.failures} else (
        select jsonb_object_agg(failed_reason, failed_devices) from (
          select failed_reason, sum(failed_devices::int) as failed_devices
          from (
            select * from jsonb_each_text(${chunk.failures})
            union all select * from jsonb_each_text(${parameter.failures}::jsonb)
          ) as counted (failed_reason, failed_devices)
          group by failed_reason
        ) as summed) end,
      ${chunk.firstAttemptAt} = case when ${parameter.startsAnew}::boolean then null
        else ${chunk.firstAttemptAt} end,
      ${chunk.updatedAt} = now()
    where ${chunk.id} = ${parameter.id}::bigint and ${chunk.attempt} = ${parameter.attempt}::int
      and ${chunk.state} = 'SENDING'
    returning 1 as one`;
});

/** Whether the time in which the devices failed begins anew: they wait, and not because of their own failures. */
function startsAnew({ state, jobId, services }: Part): boolean {
  return (state === "PENDING" && jobId === null) || services.length > 0;
}

async function writeChunk(
  tx: Database,
  chunk: TakenChunk,
  { sent, failed, dropped, dead, failures }: ChunkResult,
  first: Part,
  others: readonly Part[],
): Promise<void> {
  const isDropped = first.state === "DONE";
  const written = await rowCount(
    tx,
    updateSettled({
      id: chunk.id,
      attempt: chunk.attempt,
      state: first.state,
      left: arrayLiteral(isDropped ? [] : first.devices.map(String)),
      moved: others.reduce((sum, { devices }) => sum + devices.length, 0),
      sent,
      failed,
      dropped: dropped + (isDropped ? first.devices.length : 0),
      dead,
      retries: first.retries,
      reason: first.reason,
      startsAnew: startsAnew(first),
      jobId: first.jobId,
      failures: JSON.stringify(Object.fromEntries(failures)),
    }),
  );
  if (written === 0) throw new JobLostError(`another worker has taken chunk ${chunk.id}`);
}

const madeChunk = selection({ id: names(deliveryChunks).id });

/** Makes a chunk of some of the chunk's devices, which it no longer counts. @returns its id */
async function splitChunk(tx: Database, { id }: TakenChunk, part: Part): Promise<number> {
  const chunk = names(deliveryChunks);
  const ids = arrayLiteral(part.devices.map(String));
  const [made] = await rows(
    tx,
    madeChunk,
    sql`
      insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.state},
        ${chunk.deviceIds}, ${chunk.planned}, ${chunk.sent}, ${chunk.failed}, ${chunk.dropped}, ${chunk.dead},
        ${chunk.attempt}, ${chunk.retries}, ${chunk.firstAttemptAt}, ${chunk.reason}, ${chunk.jobId}, ${chunk.updatedAt})
      select ${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${part.state}, ${ids}::bigint[],
        ${part.devices.length}::int, 0, 0, 0, 0, 0, ${part.retries}::int,
        case when ${startsAnew(part)}::boolean then null else ${chunk.firstAttemptAt} end, ${part.reason}::text, ${part.jobId}::uuid,
        now()
      from ${deliveryChunks} where ${chunk.id} = ${id}::bigint
      returning ${madeChunk}`,
  );
  if (!made) throw new Error(`chunk ${id} is missing, although it was just written`);
  return made.id;
}
