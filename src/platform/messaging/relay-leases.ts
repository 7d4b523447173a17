/**
 * The leases by which one process at a time relays a part of an outbox. A lease is a row, and ends by the database's
 * clock if its holder dies or hangs; the holder needs no open transaction and no connection.
 */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { type PgSchema, smallint, uuid } from "drizzle-orm/pg-core";
import { arrayLiteral, type Database, type Executor } from "../database/database.ts";
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

/** Milliseconds of a lease: enough to find a batch in a busy database and to deliver it. */
const leaseMs = 13_000;

/** A lease that this process has. */
export interface RelayLease<Found> {
  /** A moment until which the lease surely lasts, by performance.now(). */
  readonly endsAt: number;
  /** What was found in the transaction that took it. */
  readonly found: Found;
  /** Ends the lease early. If that fails, this process can take it again, and for others it ends by itself. */
  release(): Promise<void>;
}

/**
 * The leases of one part that this process takes, one after the other. One that is still in the table, because its
 * release has failed or was lost in a failover, holds up other processes, and not this one.
 */
export class PartLeases {
  readonly #table: RelayLeaseTable;
  readonly #part: number;
  /** The last lease, until its release is confirmed. */
  #unreleased: string | undefined;
  /** The id of the next lease, the same until its transaction is confirmed: one that has failed may be committed. */
  #next = randomUUID();

  constructor(table: RelayLeaseTable, part: number) {
    this.#table = table;
    this.#part = part;
  }

  /**
   * Takes the lease, and runs `find` in the same transaction.
   * @returns undefined while another process has it
   */
  async take<Found>(
    db: Database,
    find: (tx: Database) => Promise<Found>,
  ): Promise<RelayLease<Found> | undefined> {
    const id = this.#next;
    const taken = await db.transaction(async (tx) => {
      const endsAt = performance.now() + leaseMs;
      return (await this.#insert(tx, id)) && { endsAt, found: await find(tx) };
    });
    if (!taken) return undefined;
    this.#unreleased = id;
    this.#next = randomUUID();
    return { ...taken, release: () => this.#release(db, id) };
  }

  /** @returns whether it was taken */
  async #insert(tx: Executor, id: string): Promise<boolean> {
    const table = this.#table;
    const held = names(table, "held");
    const { part: key, lease, expiresAt } = names(table);
    const now = sql`clock_timestamp()`;
    const lasting = sql`${leaseMs}::int * interval '1 millisecond'`;
    const end = sql`${now} + ${lasting}`;
    const own = arrayLiteral([id, ...(this.#unreleased === undefined ? [] : [this.#unreleased])]);
    // A lease that seems to last for twice as long was given by another clock, as after a failover.
    const taken = await rowCount(
      tx,
      sql`
        insert into ${table} as held (${key}, ${lease}, ${expiresAt}) values (${this.#part}::int, ${id}::uuid, ${end})
        on conflict (${key}) do update set ${lease} = excluded.${lease}, ${expiresAt} = ${end}
        where ${held.expiresAt} not between ${now} and ${end} + ${lasting} or ${held.lease} = any(${own}::uuid[])
        returning 1 as one`,
    );
    return taken > 0;
  }

  async #release(db: Executor, id: string): Promise<void> {
    const { part: key, lease, expiresAt } = names(this.#table);
    const released = sql`
      update ${this.#table} set ${expiresAt} = to_timestamp(0)
      where ${key} = ${this.#part}::int and ${lease} = ${id}::uuid`;
    try {
      await db.execute(released);
      this.#unreleased = undefined;
    } catch {
      // The next lease of this process takes its place.
    }
  }
}
