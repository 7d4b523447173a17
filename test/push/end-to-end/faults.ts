/** Faults of the database that hit one thing that the service writes, whoever writes it and whatever for. */
import { sql } from "drizzle-orm";
import postgres from "postgres";
import type { Database } from "../../../src/platform/database/database.ts";
import { asSuperuser } from "../../support/as-superuser.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { rows } from "../../support/rows.ts";
import type { SendingLab } from "./sending-lab.ts";

type Table = "history_blocks" | "dead_reports";

interface Fault {
  /** The table whose rows can no longer be written. */
  readonly table: Table;
  /** Which rows, by `new` and by what the table had before; all unless given. */
  readonly where?: string;
}

/** Has the database refuse what is written, until it is mended. */
export async function breakDatabase(
  { backend, db }: Pick<SendingLab, "backend" | "db">,
  { table, where = "true" }: Fault,
): Promise<{ mend(): Promise<void> }> {
  async function run(...statements: readonly string[]): Promise<void> {
    if (backend === "PostgreSQL") await asSuperuser(db, ...statements);
    else for (const statement of statements) await db.execute(sql.raw(statement));
  }
  // A stable function sees nothing of what the statement itself has written.
  await run(
    `create function push.refuse() returns trigger language plpgsql stable as $$
      begin
        if ${where} then raise exception 'a fault of the test'; end if;
        return new;
      end $$`,
    `create trigger refuse before insert or update on push.${table} for each row execute function push.refuse()`,
  );
  return { mend: () => run(`drop trigger refuse on push.${table}`, "drop function push.refuse()") };
}

/** Any number: the advisory lock that what is held waits for. */
const heldLock = 47_110_815;

/** Holds whoever writes to the table, in the middle of the transaction. PostgreSQL only. */
export async function holdWriters(
  db: Database,
  table: Table,
): Promise<AsyncDisposable & { isMet(): Promise<boolean> }> {
  const [database] = await rows<{ name: string }>(db, sql`select current_database() as name`);
  const url = requiredPostgresUrl();
  url.pathname = `/${database?.name}`;
  const session = postgres(url.href, { max: 1, onnotice: () => undefined });
  await session.unsafe(`
    select pg_advisory_lock(${heldLock});
    create function push.wait() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock_shared(${heldLock}); return new; end $$;
    create trigger wait before insert or update on push.${table} for each row execute function push.wait()`);
  return {
    async isMet() {
      const waiting = await session`select from pg_locks where locktype = 'advisory' and not granted
        and objid = ${heldLock} and database = (select oid from pg_database where datname = current_database())`;
      return waiting.length > 0;
    },
    [Symbol.asyncDispose]: () => session.end(),
  };
}
