/** Kinds of columns that Drizzle has not, or not with the settings that every table here wants. */
import { customType, timestamp } from "drizzle-orm/pg-core";

/** Bytes. */
export const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/** A moment, to the millisecond. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3 });
