/**
 * Ranges: devices of consecutive ids that are still to be planned for a notification. One that is too large for a step
 * is split, one that is planned is removed; each device is in one range. Nobody holds a range: who takes it counts that
 * in `tries` and puts it off, and its step goes on only if `tries` is the same. A range is locked before its
 * notification, a parked one after it.
 */
import { and, eq, type InferSelectModel, max, sql } from "drizzle-orm";
import type { TraceContext } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Database, plannedEachTime } from "../../platform/database/database.ts";
import { names, number } from "../../platform/database/sql/readers.ts";
import { computed, epochMs, prepared, rows, selection } from "../../platform/database/sql/statements.ts";
import { devices, notifications, planRanges } from "../schema.ts";

/** Seconds after which a range is taken again that was taken and that no step has locked: its process has died. */
const unlockedSeconds = 10;
/** Seconds after which a range is taken again whose step has failed. */
export const retryAfterSeconds = 60;

/** Ranges of test runs (-1), the first ones of notifications (0), and the others (1). */
export type RangeClass = -1 | 0 | 1;

/** A range as it was taken. */
export type TakenRange = Pick<
  InferSelectModel<typeof planRanges>,
  "notificationId" | "axis" | "after" | "rangeNumber" | "tries"
>;

/** Milliseconds before the range that was taken last at which a taker looks again: another may be committed later. */
const slackMs = 1_000;
/** Milliseconds after which a taker looks from the start. */
const fromStartMs = 10_000;

const range = names(planRanges);
const r = names(planRanges, "r");
const n = names(notifications, "n");
const next = names(planRanges, "next");

const taken = selection({
  notificationId: r.notificationId,
  axis: r.axis,
  after: r.after,
  rangeNumber: r.rangeNumber,
  tries: r.tries,
  rangeClass: computed(number, sql`next.range_class::float8`),
  dueAt: computed(number, epochMs(next.dueAt)),
  traceparent: n.traceparent,
  tracestate: n.tracestate,
});

/** Text, as it locks the first free range of the first class that has one, and takes it at once. */
const takeFirst = prepared(
  ["classes", "froms"],
  ({ classes, froms }) => sql`${sql.raw(plannedEachTime)}
    with next as materialized (
      select due.* from unnest(${classes}::int[], ${froms}::timestamptz[]) as class_part (range_class, from_time)
      cross join lateral (
        select ${range.notificationId}, ${range.axis}, ${range.after}, ${range.dueAt}, range_class from ${planRanges}
        where least(${range.rangeNumber}, 1) = range_class
          and ${range.dueAt} between from_time and now()::timestamptz(3)
        order by ${range.dueAt} limit 1 for update skip locked
      ) as due
      limit 1
    )
    update ${planRanges} r
    set ${range.tries} = ${r.tries} + 1, ${range.dueAt} = now() + ${sql.raw(`interval '${unlockedSeconds} s'`)}
    from next left join ${notifications} n on ${n.id} = ${next.notificationId}
    where ${r.notificationId} = ${next.notificationId} and ${r.axis} = ${next.axis} and ${r.after} = ${next.after}
    returning ${taken}`,
);

/**
 * Takes ranges, those that are due for longest first, from where it took the last one: entries of what was taken stay
 * in the index while some transaction is open for long.
 */
export class RangeTaker {
  readonly #db: Database;
  readonly #fromTimes = new Map<RangeClass, string>();
  #startedAt = performance.now();

  constructor(db: Database) {
    this.#db = db;
  }

  /** @param classes those that it may be of, in their order */
  async take(
    classes: readonly RangeClass[],
  ): Promise<{ range: TakenRange; trace: TraceContext | undefined } | undefined> {
    if (performance.now() - this.#startedAt > fromStartMs) this.#beginAnew();
    const froms = classes.map((one) => this.#fromTimes.get(one) ?? "-infinity");
    const statement = takeFirst({ classes: arrayLiteral(classes), froms: arrayLiteral(froms) });
    const [found] = await rows(this.#db, taken, statement);
    if (!found) return undefined;
    const { rangeClass, dueAt, traceparent, tracestate, ...range } = found;
    const from = new Date(dueAt - slackMs).toISOString();
    if (rangeClass === 0 || rangeClass === 1) this.#fromTimes.set(rangeClass, from);
    return {
      range,
      trace: traceparent === null ? undefined : { traceparent, ...(tracestate !== null && { tracestate }) },
    };
  }

  #beginAnew(): void {
    this.#fromTimes.clear();
    this.#startedAt = performance.now();
  }
}

const key = ({ notificationId, axis, after }: Pick<TakenRange, "notificationId" | "axis" | "after">) =>
  and(eq(planRanges.notificationId, notificationId), eq(planRanges.axis, axis), eq(planRanges.after, after));

/** Locks the range. @returns undefined if it was planned meanwhile, or taken by another */
export async function lockRange(
  tx: Database,
  taken: TakenRange,
): Promise<{ through: number | null } | undefined> {
  const [found] = await tx
    .select({ through: planRanges.through })
    .from(planRanges)
    .where(and(key(taken), eq(planRanges.tries, taken.tries)))
    .for("update");
  return found;
}

/** Puts the range off, as its step has failed. */
export async function putOffRange(db: Database, taken: TakenRange): Promise<void> {
  await db
    .update(planRanges)
    .set({ dueAt: sql`now() + make_interval(secs => ${retryAfterSeconds})` })
    .where(and(key(taken), eq(planRanges.tries, taken.tries)));
}

/** The end of the first range of a notification: the last device that exists when its planning begins. */
export async function lastDevice(tx: Database): Promise<number> {
  const [last] = await tx.select({ id: max(devices.id) }).from(devices);
  return last?.id ?? 0;
}

/** Splits the range, which is locked, after a device. The rest is due at once: any process may plan it. */
export async function splitRange(
  tx: Database,
  range: TakenRange & { readonly through: number },
  end: number,
): Promise<void> {
  const { notificationId, through, rangeNumber } = range;
  await tx.update(planRanges).set({ through: end }).where(key(range));
  await tx.insert(planRanges).values({ notificationId, after: end, through, rangeNumber: rangeNumber + 1 });
}

export async function removeRange(tx: Database, range: TakenRange): Promise<void> {
  await tx.delete(planRanges).where(key(range));
}

/** Parks the range, which is locked, until its notification is resumed. */
export async function parkRange(tx: Database, range: TakenRange): Promise<void> {
  await tx.update(planRanges).set({ dueAt: sql`'infinity'` }).where(key(range));
}

/** Makes the parked ranges of a notification, which is locked, due. There are few. */
export async function releaseRanges(tx: Database, notificationId: string): Promise<void> {
  await tx
    .update(planRanges)
    .set({ dueAt: sql`now()` })
    .where(and(eq(planRanges.notificationId, notificationId), eq(planRanges.dueAt, sql`'infinity'`)));
}
