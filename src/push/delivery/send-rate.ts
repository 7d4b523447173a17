/**
 * The rate limiter of a notification with a limit of its own, shared by all processes and providers through its row in
 * `send_rates`. Times are the database's, as in the provider's rate limiter, which comes after it.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { boolean, names, number } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { sendRates } from "../recipients-schema.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import type { Reservation } from "./rate-limiter.ts";

const row = names(sendRates);
const r = names(sendRates, "r");

const fromNow = (moment: SQL) => sql`(extract(epoch from ${moment} - at) * 1000)::float8`;
const reserved = selection({
  isSoon: computed(boolean, sql`is_soon`),
  startMs: computed(number, fromNow(sql`starts_at`)),
  /** How long a chunk waits that comes after all that wait. */
  queueMs: computed(number, fromNow(sql`queue_from`)),
});

/** The reservation of a notification, or else the milliseconds for which its chunk is to wait. */
type SendReservation = Reservation | { readonly waitMs: number };

/**
 * @returns reserves a notification's next messages of all processes, at most as many as may be sent in `sliceMs`. If they
 *   would begin in more than `maxRateWaitMs`, nothing is reserved, and the chunk queues: those that wait come back one
 *   after the other, as fast as they can be sent
 */
export function createSendRate(db: Database, { sliceMs, maxRateWaitMs }: DeliveryRules) {
  return async (notificationId: string, perSecond: number, wanted: number): Promise<SendReservation> => {
    const messages = Math.min(wanted, Math.max(1, Math.floor((perSecond * sliceMs) / 1000)));
    const lengthMs = Math.ceil((messages / perSecond) * 1000);
    const id = sql`${notificationId}::uuid`;
    const span = (ms: number) => sql`make_interval(secs => ${ms / 1000}::float8)`;
    // The clock is read once the row is locked. A row with a far later end was written before that clock was set back.
    const statement = sql`
      update ${sendRates} r
      set ${row.nextAt} = case when is_soon then starts_at + ${span(lengthMs)} else ${r.nextAt} end,
        ${row.queueEndsAt} = case when is_soon then ${r.queueEndsAt}
          else queue_from + ${span((wanted / perSecond) * 1000)} end
      from (
        select at, starts_at, starts_at <= at + ${span(maxRateWaitMs)} as is_soon,
          greatest(starts_at, queued_until) as queue_from
        from (
          select at, queued_until,
            case when reserved_until > at + interval '60 seconds' then at else greatest(reserved_until, at) end as starts_at
          from (
            select clock_timestamp() as at, reserved_until, queued_until from (
              select ${row.nextAt} as reserved_until, ${row.queueEndsAt} as queued_until from ${sendRates}
              where ${row.notificationId} = ${id} for update
            ) as held
          ) as now_held
        ) as begun
      ) as t
      where ${r.notificationId} = ${id}
      returning ${reserved}`;
    let [next] = await rows(db, reserved, statement);
    if (!next) {
      const now = sql`clock_timestamp()`;
      await db
        .insert(sendRates)
        .values({ notificationId, nextAt: now, queueEndsAt: now })
        .onConflictDoNothing();
      [next] = await rows(db, reserved, statement);
    }
    if (!next) throw new Error(`the row of ${notificationId} in send_rates is missing`);
    const { isSoon, startMs, queueMs } = next;
    return isSoon ? { messages, startMs, endMs: startMs + lengthMs } : { waitMs: queueMs };
  };
}
