/**
 * The leases by which one process at a time relays a part of an outbox. A lease is a row, and ends after a fixed time
 * by the database's clock, so that a process that dies or hangs loses it. Its holder needs no open transaction and no
 * connection meanwhile, however long a broker takes.
 */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { type PgSchema, smallint, uuid } from "drizzle-orm/pg-core";
import type { Executor } from "../database/database.ts";
import { instant } from "../database/sql/columns.ts";
import { names } from "../database/sql/names.ts";
import { rowCount } from "../database/sql/statements.ts";

/** The leases of a service's relay, in its PostgreSQL schema. */
export function relayLeaseTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table("relay_leases", {
    part: smallint("part").primaryKey(),
    /** The id of the lease, which is new each time that the part is leased. */
    lease: uuid("lease").notNull(),
    expiresAt: instant("expires_at").notNull(),
  });
}

export type RelayLeaseTable = ReturnType<typeof relayLeaseTable<string>>;

/** The duration of a lease in milliseconds: longer than to find a batch in a busy database and to deliver it. */
const leaseMs = 20_000;

export interface RelayLease {
  /** A moment until which the lease surely lasts, by performance.now(). */
  readonly endsAt: number;
  /** Ends the lease early, once the transaction that took it is committed. If that fails, the lease ends by itself. */
  release(db: Executor): Promise<void>;
}

/**
 * Takes the lease of a part, with the commit of the transaction.
 * @returns undefined while another process has it
 */
export async function takeRelayLease(
  tx: Executor,
  table: RelayLeaseTable,
  part: number,
): Promise<RelayLease | undefined> {
  const id = randomUUID();
  const endsAt = performance.now() + leaseMs;
  const held = names(table, "held");
  const { part: key, lease, expiresAt } = names(table);
  const now = sql`clock_timestamp()`;
  const lasting = sql`${leaseMs}::int * interval '1 millisecond'`;
  const end = sql`${now} + ${lasting}`;
  // A lease that seems to last for twice as long was given by another clock, as after a failover.
  const taken = await rowCount(
    tx,
    sql`
      insert into ${table} as held (${key}, ${lease}, ${expiresAt}) values (${part}::int, ${id}::uuid, ${end})
      on conflict (${key}) do update set ${lease} = excluded.${lease}, ${expiresAt} = ${end}
      where ${held.expiresAt} not between ${now} and ${end} + ${lasting}
      returning 1 as one`,
  );
  if (taken === 0) return undefined;
  return {
    endsAt,
    async release(db) {
      const released = sql`
        update ${table} set ${expiresAt} = to_timestamp(0) where ${key} = ${part}::int and ${lease} = ${id}::uuid`;
      await db.execute(released).catch(() => undefined);
    },
  };
}
