/** Column types that Drizzle lacks, or that every table here needs with the same settings. */
import { customType, timestamp } from "drizzle-orm/pg-core";
import type { Reader } from "./readers.ts";

export const bytea = customType<{ data: Uint8Array }>({ dataType: () => "bytea" });

/** Bytes as PostgreSQL writes them: within JSON, say, where no driver encodes them. */
export const hexOfBytea = (bytes: Buffer) => `\\x${bytes.toString("hex")}`;

/** `jsonb`, whose values are checked as they are read. */
export function checkedJson<T>(name: string, reader: Reader<T>) {
  const column = customType<{ data: T; driverData: unknown }>({
    dataType: () => "jsonb",
    toDriver: (value) => JSON.stringify(value),
    // One of the drivers returns JSON as text, the other parses it.
    fromDriver: (value) => reader.read(typeof value === "string" ? JSON.parse(value) : value),
  });
  return column(name);
}

/** `timestamptz(3)`: a moment, to the millisecond. */
export const instant = (name: string) => timestamp(name, { withTimezone: true, precision: 3 });
