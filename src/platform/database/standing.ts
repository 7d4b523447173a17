/** What a server says of its place in a cluster, from which it follows whether it is the primary. */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type { Standing } from "./choose-primary.ts";
import type { Result } from "./connection.ts";
import { boolean, nullable, number, text } from "./readers.ts";
import { computed, selection } from "./statements.ts";

const standing = selection({
  cluster: computed(text, sql`(pg_control_system()).system_identifier::text`),
  // The control file has the new timeline some time after the promotion; the name of the file that is written, at once.
  walFile: computed(
    nullable(text),
    sql`case when pg_is_in_recovery() then null else pg_walfile_name(pg_current_wal_lsn()) end`,
  ),
  // The control file of a standby has the timeline that it follows after some minutes at most, and any user may see it;
  controlTimeline: computed(
    nullable(number),
    sql`(select greatest(checkpoint.timeline_id, recovery.min_recovery_end_timeline)
      from pg_control_checkpoint() checkpoint, pg_control_recovery() recovery where pg_is_in_recovery())`,
  ),
  // what it receives has it at once, and is seen by members of pg_read_all_stats.
  receivedTimeline: computed(nullable(number), sql`(select received_tli from pg_stat_wal_receiver)`),
  isReceiving: computed(
    boolean,
    sql`exists (select from pg_stat_wal_receiver
      where status = 'streaming' and last_msg_receipt_time > now() - interval '10 seconds')`,
  ),
});

const statement = new PgDialect().sqlToQuery(sql`select ${standing}`).sql;

/** Asks the server at the other end of a connection, as any user may. */
export async function askStanding(query: (text: string) => Promise<Result>): Promise<Standing> {
  const [row] = await query(statement);
  const { cluster, walFile, controlTimeline, receivedTimeline, isReceiving } = standing.read(row);
  if (walFile !== null) return { cluster, timeline: timelineOf(walFile) };
  const received = receivedTimeline ?? 0;
  const followed = Math.max(controlTimeline ?? 0, received);
  return { cluster, timeline: undefined, followed, isReceiving: isReceiving && received === followed };
}

/** The first eight hexadecimal digits of the name of a file of the log. */
function timelineOf(walFile: string): number {
  return Number.parseInt(walFile.slice(0, 8), 16);
}
