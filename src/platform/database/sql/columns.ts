/** Column types that Drizzle lacks, or that every table here needs with the same settings. */
import { customType, timestamp } from "drizzle-orm/pg-core";

/** Bytes. */
export const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/** `timestamptz(3)`: a moment, to the millisecond. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3 });
