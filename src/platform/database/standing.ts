/** What a server says of its place in a cluster, from which it follows whether it is the primary. */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type { Standing } from "./choose-primary.ts";
import type { Result } from "./connection.ts";
import { nullable, text } from "./readers.ts";
import { computed, selection } from "./statements.ts";

const standing = selection({
  cluster: computed(text, sql`(pg_control_system()).system_identifier::text`),
  // The control file has the new timeline some time after the promotion; the name of the file that is written, at once.
  walFile: computed(
    nullable(text),
    sql`case when pg_is_in_recovery() then null else pg_walfile_name(pg_current_wal_lsn()) end`,
  ),
});

const statement = new PgDialect().sqlToQuery(sql`select ${standing}`).sql;

/** Asks the server at the other end of a connection, as any user may. */
export async function askStanding(query: (text: string) => Promise<Result>): Promise<Standing> {
  const [row] = await query(statement);
  const { cluster, walFile } = standing.read(row);
  return { cluster, timeline: walFile === null ? undefined : timelineOf(walFile) };
}

/** The first eight hexadecimal digits of the name of a file of the log. */
function timelineOf(walFile: string): number {
  return Number.parseInt(walFile.slice(0, 8), 16);
}
