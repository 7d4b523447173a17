/**
 * What became of a notification's devices: sums over its chunks, and the totals of those that were deleted with it.
 */
import { type SQL, sql } from "drizzle-orm";
import { names } from "../../platform/database/sql/readers.ts";
import { recipientsOf } from "../history/history-blocks.ts";
import { deliveryChunks, notifications } from "../schema.ts";

const c = names(deliveryChunks, "c");
const n = names(notifications, "n");
const chunk = names(deliveryChunks);
const { planned, sent, failed, dropped, provider, failures } = chunk;
const counts = sql`${planned}, ${sent}, ${failed}, ${dropped}`;

/**
 * An expression: the number of users that the notification `n` is for, by their entries, if it has any. It is written
 * when planning ends, and when a notification is recalled, as it has no entries any more then.
 */
export const recipientsNow: SQL = sql`
  case when ${n.history} and ${n.plannedAt} is null and ${n.recalledAt} is null then ${recipientsOf(n.id)} else ${n.recipients} end`;

/** The columns of `parts`. */
export const part = names(deliveryChunks, "chunk_part");

/** An item of a `from` list after `n`, the notification: its chunks, and its totals as chunks that are DONE. */
export const parts: SQL = sql`
  lateral (
    select ${chunk.utcOffset}, ${provider}, ${chunk.state}, ${counts}, ${failures}
    from ${deliveryChunks} c where ${c.notificationId} = ${n.id}
    union all
    select "utcOffset", ${provider}, 'DONE', ${counts}, ${failures}
    from jsonb_to_recordset(${n.totals}) as total ("utcOffset" smallint, ${provider} text,
      ${planned} int, ${sent} int, ${failed} int, ${dropped} int, ${failures} jsonb)
  ) as chunk_part`;

/** Items of a `with` list: the totals of the parts of a notification that are DONE, as `merged (merged_totals)`. */
export const mergedTotals = (notificationId: SQL): SQL => {
  const ofDone = sql`from ${notifications} n cross join ${parts}`;
  const isDone = sql`where ${n.id} = ${notificationId} and ${part.state} = 'DONE'`;
  const group = sql`${part.utcOffset}, ${part.provider}`;
  return sql`
    reasons as (
      select at_offset, of_provider, jsonb_object_agg(reason_text, reason_devices) as by_reason from (
        select ${part.utcOffset} as at_offset, ${part.provider} as of_provider, reason_text,
          sum(devices_text::int) as reason_devices
        ${ofDone} cross join lateral jsonb_each_text(${part.failures}) as counted_reason (reason_text, devices_text)
        ${isDone} group by ${group}, reason_text
      ) as counted
      group by at_offset, of_provider
    ),
    merged as (
      select coalesce(jsonb_agg(to_jsonb(total)), '[]') as merged_totals from (
        select ${part.utcOffset} as "utcOffset", ${provider}, sum(${planned}) as ${planned}, sum(${sent}) as ${sent},
          sum(${failed}) as ${failed}, sum(${dropped}) as ${dropped},
          coalesce((
            select by_reason from reasons
            where at_offset = ${part.utcOffset} and of_provider = ${part.provider}
          ), '{}') as ${failures}
        ${ofDone} ${isDone} group by ${group}
      ) as total
    )`;
};
