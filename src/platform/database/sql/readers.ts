/**
 * What reads the values that a statement returns: columns by their names, and readers of values that no column types.
 * Each checks the value, so that a statement and its reader cannot drift.
 */
import { type Column, type GetColumnData, getTableColumns, SQL, StringChunk } from "drizzle-orm";
import type { PgTable } from "drizzle-orm/pg-core";

/** Reads a value that a driver returned. */
export interface Reader<T> {
  /** @throws UnexpectedValueError */
  read(value: unknown): T;
}

export type ReadBy<R> = R extends Reader<infer T> ? T : never;

/** A statement returned a value of another type than expected. */
export class UnexpectedValueError extends Error {
  override readonly name = "UnexpectedValueError";

  constructor(expected: string, value: unknown) {
    super(`the database returned ${value === null ? "null" : typeof value} in place of ${expected}`);
  }
}

/** @param expected in words, for the error */
export function checked<T>(expected: string, isExpected: (value: unknown) => value is T): Reader<T> {
  return {
    read(value) {
      if (isExpected(value)) return value;
      throw new UnexpectedValueError(expected, value);
    },
  };
}

export const text = checked("a text", (value) => typeof value === "string");
export const boolean = checked("a boolean", (value) => typeof value === "boolean");
/** A `float8`, an `int`, or a number of JSON. */
export const number = checked("a number", (value) => typeof value === "number");
/** An `int`, or an integer of JSON. One of the drivers returns a `bigint` as text; a column reads that. */
export const integer = checked("an integer", (value): value is number => Number.isSafeInteger(value));
export const jsonObject = checked(
  "an object",
  (value): value is Record<string, unknown> =>
    typeof value === "object" && value !== null && !Array.isArray(value),
);
type MemberReaders = Readonly<Record<string, Reader<unknown>>>;
/** Members that may be absent need not be stated. */
type ObjectBy<M extends MemberReaders> = {
  [Name in keyof M as undefined extends ReadBy<M[Name]> ? never : Name]: ReadBy<M[Name]>;
} & { [Name in keyof M as undefined extends ReadBy<M[Name]> ? Name : never]?: ReadBy<M[Name]> };
/** An object of JSON that has these members; others are left out. */
export function objectOf<M extends MemberReaders>(members: M): Reader<ObjectBy<M>>;
export function objectOf(members: MemberReaders): Reader<Record<string, unknown>> {
  return {
    read(value) {
      const object = jsonObject.read(value);
      const read = Object.entries(members).map(([name, reader]) => [name, reader.read(object[name])]);
      return Object.fromEntries(read);
    },
  };
}
/** A member that may be absent. */
export function optional<T>(reader: Reader<T>): Reader<T | undefined> {
  return { read: (value) => (value === undefined ? undefined : reader.read(value)) };
}
export function oneOf<const T extends string>(values: readonly T[]): Reader<T> {
  return checked(`one of ${values.join(", ")}`, (value): value is T => values.some((one) => one === value));
}

export function nullable<T>(reader: Reader<T>): Reader<T | null> {
  return { read: (value) => (value === null ? null : reader.read(value)) };
}

export function listOf<T>(reader: Reader<T>): Reader<T[]> {
  return {
    read(value) {
      if (!Array.isArray(value)) throw new UnexpectedValueError("a list", value);
      return value.map((one) => reader.read(one));
    },
  };
}

// Drizzle qualifies the names of columns that are interpolated, which neither the column list of an insert nor `set`
// accepts, nor a table with an alias.

/** The name of a column in an SQL text, and the reader of the column's values. */
class ColumnName<T = unknown> extends SQL<T> implements Reader<T> {
  readonly #column: Column;

  constructor(column: Column, qualifier: string | undefined) {
    const path = qualifier === undefined ? [column.name] : [qualifier, column.name];
    super([new StringChunk(path.map((name) => `"${name.replaceAll('"', '""')}"`).join("."))]);
    this.#column = column;
  }

  /** The value in the type that the schema gives the column, from either driver. */
  read(value: unknown): T;
  read(value: unknown): unknown {
    const { name, notNull } = this.#column;
    if (value === null && !notNull) return null;
    if (value === null || value === undefined) throw new UnexpectedValueError(`a value of ${name}`, value);
    return this.#column.mapFromDriverValue(value);
  }
}

type Names<Table extends PgTable> = {
  readonly [Key in keyof Table["_"]["columns"]]: ColumnName<GetColumnData<Table["_"]["columns"][Key]>>;
};

/** The names of a table's columns. @param qualifier the table's alias in the statement: "c" gives `"c"."id"` */
export function names<Table extends PgTable>(table: Table, qualifier?: string): Names<Table>;
export function names(table: PgTable, qualifier?: string): unknown {
  const columns = Object.entries(getTableColumns(table));
  return Object.fromEntries(columns.map(([key, column]) => [key, new ColumnName(column, qualifier)]));
}
