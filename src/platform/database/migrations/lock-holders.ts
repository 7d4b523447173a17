/** The sessions that have locked something, for an operator whose statement waits for it. */
import { sql } from "drizzle-orm";
import { arrayLiteral, type Executor } from "../database.ts";
import { text } from "../sql/readers.ts";
import { computed, rows, selection } from "../sql/statements.ts";

/** Sessions that are named, at most. */
const maxNamed = 3;

const holder = selection({ name: computed(text, sql`holder.name`) });
const name = sql`format('%s (process %s, user %s)', coalesce(nullif(application_name, ''), 'a session'), pid, usename)`;

/**
 * Sessions of others that lock tables of these schemas, as in "pg_dump (process 4711, user backup)"; ours come last.
 */
export async function whoHoldsLocks(db: Executor, schemas: readonly string[]): Promise<string[]> {
  const holders = await rows(
    db,
    holder,
    sql`select ${holder} from (
      select distinct application_name = current_setting('application_name') as is_ours, pid,
        ${name} as name
      from pg_locks join pg_stat_activity using (pid)
      join pg_class on pg_class.oid = relation join pg_namespace on pg_namespace.oid = relnamespace
      where granted and pid <> pg_backend_pid() and datname = current_database() and relkind in ('r', 'p')
        and nspname = any(${arrayLiteral(schemas)}::text[])
    ) as holder order by is_ours, pid limit ${maxNamed}`,
  );
  return holders.map(({ name }) => name);
}

/** The session that has this advisory lock of 32 bits; undefined once nobody has it. */
export async function whoHoldsAdvisoryLock(db: Executor, key: number): Promise<string | undefined> {
  const [found] = await rows(
    db,
    holder,
    sql`select ${holder} from (
      select ${name} as name from pg_locks join pg_stat_activity using (pid)
      where granted and locktype = 'advisory' and classid = 0 and objid = ${key}::oid and objsubid = 1
        and database = (select oid from pg_database where datname = current_database())
    ) as holder`,
  );
  return found?.name;
}
