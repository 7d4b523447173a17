/**
 * Ranges: devices of consecutive ids that are still to be planned for a notification. It begins with one range of all
 * devices; a range that is too large for one step is split, and one that is planned is removed. A device keeps its id
 * while it is its user's, so whatever else happens to it, it is in one range, and is planned once. Several processes
 * plan ranges of the same notification at once.
 *
 * Like a chunk, a range names the job that may take it; without a job it is parked. A range with a job is locked before
 * its notification, since a step has the range for all of its time and the notification for the end of it only. A
 * parked range is in no step: it is written by those who have locked the notification.
 */
import { randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean, integer, listOf, nullable, number, text } from "../../platform/database/sql/readers.ts";
import { computed, epochMs, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Job, Jobs } from "../../platform/messaging/jobs.ts";
import { type PlanJob, planQueue, planRestQueue } from "../database.ts";
import { devices, notifications, planRanges } from "../schema.ts";
import { devicePlace, type PlaceAt } from "./places.ts";

const row = names(planRanges);
const r = names(planRanges, "r");
const n = names(notifications, "n");
const device = names(devices);

/** A range that this worker has taken; its row is locked. */
export interface PlanRange {
  readonly notificationId: string;
  readonly isTest: boolean;
  /** Minutes; null in a test run. */
  readonly utcOffsets: readonly number[] | null;
  /** Milliseconds since the epoch. */
  readonly acceptedAt: number;
  /** The ids of its devices are greater than this id. */
  readonly after: number;
  /** The ids of its devices are at most this id. */
  readonly through: number;
  /** The number of the range among the notification's: ranges of all notifications take turns. */
  readonly turn: number;
}

type RangeJob = Pick<Job<PlanJob>, "id" | "data">;

/** The first range of a new notification, for each row of `from`, which has its id; all devices are in it. */
export function firstRange(jobId: string, from: SQL): SQL {
  return sql`
    insert into ${planRanges} (${row.notificationId}, ${row.after}, ${row.turn}, ${row.jobId})
    select ${names(notifications).id}, 0, 0, ${jobId}::uuid ${from}`;
}

/** Test runs are planned first: they are small, and an operator waits for them. */
const priorityOf = (turn: number, isTest: boolean): number => (isTest ? 1 : -turn);

/** Enqueues the job of a range, whose row names it. */
export async function enqueueRange(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  notificationId: string,
  {
    jobId,
    turn,
    isTest,
    startAfterSeconds = 0,
  }: {
    readonly jobId: string;
    readonly turn: number;
    readonly isTest: boolean;
    readonly startAfterSeconds?: number;
  },
): Promise<void> {
  const data: PlanJob = { notificationId };
  await jobs.enqueue(tx, turn === 0 ? planQueue : planRestQueue, [
    { id: jobId, data, priority: priorityOf(turn, isTest), startAfterSeconds },
  ]);
}

const taken = selection({
  isTest: computed(boolean, sql`${n.userIds} is not null`),
  utcOffsets: computed(nullable(listOf(integer)), sql`to_jsonb(${n.utcOffsets})`),
  acceptedAt: computed(number, epochMs(n.acceptedAt)),
  after: r.after,
  through: computed(number, sql`${r.through}::float8`),
  turn: r.turn,
});

const ofJob = ({ id, data }: RangeJob): SQL => sql`
  ${r.notificationId} = ${data.notificationId}::uuid and ${r.jobId} = ${id}::uuid`;

/**
 * Takes and locks the job's range. The first one ends at the last device that exists when planning begins.
 * @returns undefined if the notification is not being planned, or the range is another job's, or planned already
 */
export async function takeRange(tx: Database, job: RangeJob): Promise<PlanRange | undefined> {
  const [found] = await rows(
    tx,
    taken,
    sql`
      update ${planRanges} r
      set ${row.through} = coalesce(${r.through}, (select max(${device.id}) from ${devices}), 0)
      from ${notifications} n
      where ${ofJob(job)} and ${n.id} = ${r.notificationId} and ${n.state} = 'PLANNING'
      returning ${taken}`,
  );
  return found && { notificationId: job.data.notificationId, ...found };
}

/**
 * Runs an action in which PostgreSQL reads tables by their indexes, and chooses the index by the number of rows that it
 * expects to read, not by where they lie. A tablespace with page costs of its own is not affected. The settings end
 * with the action, since PostgreSQL keeps the plans that it makes meanwhile for other uses of the same statements.
 * @param tx a transaction
 */
export async function ignorePageCosts<T>(tx: Database, action: () => Promise<T>): Promise<T> {
  await tx.execute(sql`
    select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
      set_config('random_page_cost', '0', true), set_config('seq_page_cost', '0', true)`);
  const result = await action();
  await tx.execute(sql`
    select set_config('enable_seqscan', null, true), set_config('enable_bitmapscan', null, true),
      set_config('random_page_cost', null, true), set_config('seq_page_cost', null, true)`);
  return result;
}

/**
 * A query for the columns of the range's devices at the places, and `minutes`, the offset of their place. Unless the
 * range has no more than a handful of ids, it reads no other devices, if it is executed within {@link ignorePageCosts}:
 * statistics lag behind a table that grows, so the query does not depend on them.
 *
 * Place and id have a condition each, so that reading ends where the range does: with a condition on the pair of them,
 * PostgreSQL would stop only at the end of the place. The comparisons of the place exclude nothing more, but make
 * PostgreSQL expect fewer rows, also where its statistics know of one place only, so that it uses the index of places.
 */
export function devicesAt(
  { after, through }: Pick<PlanRange, "after" | "through">,
  places: readonly PlaceAt[],
  columns: SQL,
): SQL {
  return sql`
    select device.*, wanted.minutes from ${wanted(places)}
    cross join lateral (
      select ${columns} from ${devices}
      where ${devicePlace} = wanted.place and ${device.id} > ${after}::bigint and ${device.id} <= ${through}::bigint
        and ${devicePlace} >= wanted.place and ${devicePlace} <= wanted.place offset 0
    ) as device`;
}

/** A step's devices divided by this are looked at on either side, to see how many of the ids are at the places. */
const sample = 64;

/**
 * A query for the same devices that reads all of the range. If most devices are at the places, it takes a quarter of
 * the time: rows that were inserted one after the other are read one after the other.
 */
export function devicesAmong(
  { after, through }: Pick<PlanRange, "after" | "through">,
  places: readonly PlaceAt[],
  columns: SQL,
): SQL {
  return sql`
    select device.*, wanted.minutes from ${wanted(places)}
    join (
      select ${columns}, ${devicePlace} as place from ${devices}
      where ${device.id} > ${after}::bigint and ${device.id} <= ${through}::bigint offset 0
    ) as device on device.place = wanted.place`;
}

/** An item of a `from` list: the places and their offsets. */
function wanted(places: readonly PlaceAt[]): SQL {
  const placeNames = arrayLiteral(places.map(({ place }) => place));
  const offsets = sql.raw(
    `array[${places.map(({ utcOffset }) => utcOffset ?? "null").join(", ")}]::smallint[]`,
  );
  return sql`unnest(${placeNames}::text[], ${offsets}) as wanted (place, minutes)`;
}

const first = selection({ id: computed(nullable(number), sql`min(found.device)::float8`) });

/** The id of the range's first device at the places. */
async function firstDevice(
  tx: Database,
  { after, through }: Pick<PlanRange, "after" | "through">,
  places: readonly PlaceAt[],
): Promise<number | null> {
  // What follows in the index may be at another place, or beyond the range.
  const ofEach = sql`
    select next.device from ${wanted(places)}
    cross join lateral (
      select ${devicePlace} as place, ${device.id} as device from ${devices}
      where (${devicePlace}, ${device.id}) > (wanted.place, ${after}::bigint)
      order by ${devicePlace}, ${device.id} limit 1
    ) as next
    where next.place = wanted.place and next.device <= ${through}::bigint`;
  const [found] = await rows(tx, first, sql`select ${first} from (${ofEach}) as found`);
  return found?.id ?? null;
}

const counted = selection({ devices: computed(integer, sql`count(*)::int`) });

/** Whether a range has more devices at the places than a step may have. */
async function exceeds(
  tx: Database,
  range: Pick<PlanRange, "after" | "through">,
  places: readonly PlaceAt[],
  size: number,
): Promise<boolean> {
  const some = sql`select 1 from (${devicesAt(range, places, device.id)}) as device limit ${size + 1}::int`;
  const [found] = await rows(tx, counted, sql`select ${counted} from (${some}) as found`);
  return (found?.devices ?? 0) > size;
}

/**
 * Whether a range of so few ids that one step can read all of them begins and ends with devices of which more than half
 * are at the places.
 */
export async function isDense(
  tx: Database,
  { after, through }: Pick<PlanRange, "after" | "through">,
  places: readonly PlaceAt[],
  size: number,
): Promise<boolean> {
  const few = Math.ceil(size / sample);
  return (
    through - after <= size &&
    (await exceeds(tx, { after, through: after + 2 * few }, places, few)) &&
    (await exceeds(tx, { after: through - 2 * few, through }, places, few))
  );
}

/**
 * Finds where to split a range that has more devices than a step may have, so that the first part has as many or a few
 * less.
 * From the first device on, a part of as many ids as devices are allowed never has too many devices, and has enough if
 * many of them are at the places. Otherwise twice as many ids are tried, and so on.
 * @param places the places at the notification's offsets
 * @param size the most devices of a step
 * @returns the last id of the first part; undefined: the range need not be split
 */
export async function endOfStep(
  tx: Database,
  { after, through }: PlanRange,
  places: readonly PlaceAt[],
  size: number,
): Promise<number | undefined> {
  if (places.length === 0 || through - after <= size) return undefined;
  return ignorePageCosts(tx, async () => {
    const firstId = await firstDevice(tx, { after, through }, places);
    if (firstId === null) return undefined;
    const before = firstId - 1;
    const next = before + size;
    if (next < through && (await isDense(tx, { after: before, through: next }, places, size))) return next;
    for (let end = next; end < through; ) {
      const wider = Math.min(through, 2 * end - before);
      if (await exceeds(tx, { after, through: wider }, places, size)) return end;
      end = wider;
    }
    return undefined;
  });
}

/** Splits the range, which is locked, after a device. The rest gets a job of its own: any process may plan it. */
export async function splitRange(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  { notificationId, isTest, after, through, turn }: PlanRange,
  end: number,
): Promise<void> {
  const jobId = randomUUID();
  await tx.execute(sql`
    update ${planRanges} set ${row.through} = ${end}::bigint
    where ${row.notificationId} = ${notificationId}::uuid and ${row.after} = ${after}::bigint`);
  await tx.execute(sql`
    insert into ${planRanges} (${row.notificationId}, ${row.after}, ${row.through}, ${row.turn}, ${row.jobId})
    values (${notificationId}::uuid, ${end}::bigint, ${through}::bigint, ${turn + 1}::int, ${jobId}::uuid)`);
  await enqueueRange(tx, jobs, notificationId, { jobId, turn: turn + 1, isTest });
}

/**
 * Locks the job's range, to change or remove it outside of a step. Comes before the lock of its notification: a worker
 * that has lost the job may still be in a step.
 * @returns whether the range is there, and still this job's
 */
export async function lockRange(tx: Database, job: RangeJob): Promise<boolean> {
  return (await rowCount(tx, sql`select 1 as one from ${planRanges} r where ${ofJob(job)} for update`)) > 0;
}

/** Removes the job's range. @returns whether it was there */
export async function removeRange(tx: Database, job: RangeJob): Promise<boolean> {
  return (await rowCount(tx, sql`delete from ${planRanges} r where ${ofJob(job)} returning 1 as one`)) > 0;
}

/** Leaves the job's range to another job, or parks it (null). @returns its turn, if it was there */
export async function reassignRange(
  tx: Database,
  job: RangeJob,
  jobId: string | null,
): Promise<number | undefined> {
  const reassigned = selection({ turn: r.turn });
  const [found] = await rows(
    tx,
    reassigned,
    sql`update ${planRanges} r set ${row.jobId} = ${jobId}::uuid where ${ofJob(job)} returning ${reassigned}`,
  );
  return found?.turn;
}

const released = selection({ turn: row.turn, jobId: computed(text, sql`${row.jobId}::text`) });

/** Gives the parked ranges of a notification, which is locked, a job each. There are few. */
export async function releaseRanges(
  tx: Database,
  jobs: Pick<Jobs, "enqueue">,
  notificationId: string,
  isTest: boolean,
): Promise<void> {
  const found = await rows(
    tx,
    released,
    sql`
      update ${planRanges} set ${row.jobId} = gen_random_uuid()
      where ${row.notificationId} = ${notificationId}::uuid and ${row.jobId} is null
      returning ${released}`,
  );
  for (const one of found) await enqueueRange(tx, jobs, notificationId, { ...one, isTest });
}
