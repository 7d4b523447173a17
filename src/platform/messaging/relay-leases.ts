/** Leases by which one process at a time relays a part of an outbox: rows, which end by the database's clock. */
import { and, eq, sql } from "drizzle-orm";
import { type PgSchema, smallint, uuid } from "drizzle-orm/pg-core";
import type { Database } from "../database/database.ts";
import { instant } from "../database/sql/columns.ts";

export function relayLeaseTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table("relay_leases", {
    part: smallint("part").primaryKey(),
    /** Who has it, or had it last: the id of a relay that runs in a process. */
    holder: uuid("lease").notNull(),
    expiresAt: instant("expires_at").notNull(),
  });
}

export type RelayLeaseTable = ReturnType<typeof relayLeaseTable<string>>;

/** Milliseconds of a lease: enough to find a batch in a busy database and to deliver it. */
const leaseMs = 13_000;

export interface RelayLease<Found> {
  /** A moment until which the lease surely lasts, by performance.now(). */
  readonly endsAt: number;
  /** What was found in the transaction that took it. */
  readonly found: Found;
  /** Ends the lease early. If that fails, this process can take it again, and for others it ends by itself. */
  release(): Promise<void>;
}

/**
 * Takes the lease of a part, and runs `find` in the same transaction; its holder may take it again at any time.
 * @returns undefined while another process has it
 */
export async function takeLease<Found>(
  db: Database,
  table: RelayLeaseTable,
  { part, holder }: { readonly part: number; readonly holder: string },
  find: (tx: Database) => Promise<Found>,
): Promise<RelayLease<Found> | undefined> {
  const now = sql`clock_timestamp()`;
  const lasting = sql`${leaseMs}::int * interval '1 millisecond'`;
  const lease = { holder, expiresAt: sql`${now} + ${lasting}` };
  const taken = await db.transaction(async (tx) => {
    const endsAt = performance.now() + leaseMs;
    const [row] = await tx
      .insert(table)
      .values({ part, ...lease })
      .onConflictDoUpdate({
        target: table.part,
        set: lease,
        // A lease that seems to last for twice as long was given by another clock, as after a failover.
        setWhere: sql`${table.holder} = ${holder} or ${table.expiresAt} not between ${now} and ${now} + 2 * ${lasting}`,
      })
      .returning();
    return row && { endsAt, row, found: await find(tx) };
  });
  if (!taken) return undefined;
  const { row, endsAt, found } = taken;
  // Its end distinguishes it from a later one: a release that comes late ends no other.
  const isThisOne = and(eq(table.part, part), eq(table.holder, holder), eq(table.expiresAt, row.expiresAt));
  return {
    endsAt,
    found,
    async release() {
      const released = db
        .update(table)
        .set({ expiresAt: new Date(0) })
        .where(isThisOne);
      await released.catch(() => undefined);
    },
  };
}
