import { bigint, type PgSchema, text, uuid } from "drizzle-orm/pg-core";

/** The processes that may read from standbys, in a service's PostgreSQL schema: see leases.ts. */
export function leaseTable<const Name extends string>(schema: PgSchema<Name>) {
  return schema.table("read_leases", {
    /** Made at its start. */
    processId: uuid("process_id").primaryKey(),
    /** A number that the process raises. */
    beat: bigint("beat", { mode: "number" }).notNull(),
    /** The servers that the process may be reading from. */
    servers: text("servers").array().notNull(),
  });
}

export type LeaseTable = ReturnType<typeof leaseTable<string>>;
