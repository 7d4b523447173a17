/** Reads a server's replication state, from which it follows whether the server is the primary. */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type { Result } from "../connections/connection.ts";
import type { ReplicationState } from "../connections/replication-state.ts";
import { boolean, nullable, number, text } from "../sql/readers.ts";
import { computed, selection } from "../sql/statements.ts";

const selected = selection({
  cluster: computed(text, sql`(pg_control_system()).system_identifier::text`),
  // The name of the file that is written has the new timeline at once, the control file some time after the promotion.
  walFile: computed(
    nullable(text),
    sql`case when pg_is_in_recovery() then null else pg_walfile_name(pg_current_wal_lsn()) end`,
  ),
  // The control file of a standby has the timeline that it follows after some minutes at most. Any user may read it.
  controlTimeline: computed(
    nullable(number),
    sql`(select greatest(checkpoint.timeline_id, recovery.min_recovery_end_timeline)
      from pg_control_checkpoint() checkpoint, pg_control_recovery() recovery where pg_is_in_recovery())`,
  ),
  // The WAL receiver has the timeline at once. Only members of pg_read_all_stats may see it.
  receivedTimeline: computed(nullable(number), sql`(select received_tli from pg_stat_wal_receiver)`),
  isReceiving: computed(
    boolean,
    sql`exists (select from pg_stat_wal_receiver
      where status = 'streaming' and last_msg_receipt_time > now() - interval '10 seconds')`,
  ),
});

const statement = new PgDialect().sqlToQuery(sql`select ${selected}`).sql;

/** Reads the state of the server at the other end of a connection. Any user may. */
export async function readReplicationState(
  query: (text: string) => Promise<Result>,
): Promise<ReplicationState> {
  const [row] = await query(statement);
  const { cluster, walFile, controlTimeline, receivedTimeline, isReceiving } = selected.read(row);
  if (walFile !== null) return { cluster, timeline: timelineOf(walFile) };
  const received = receivedTimeline ?? 0;
  const followed = Math.max(controlTimeline ?? 0, received);
  return { cluster, timeline: undefined, followed, isReceiving: isReceiving && received === followed };
}

/** The name of a WAL file begins with its timeline, in eight hexadecimal digits. */
function timelineOf(walFile: string): number {
  return Number.parseInt(walFile.slice(0, 8), 16);
}
