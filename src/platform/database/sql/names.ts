/**
 * Column names for hand-written SQL. Drizzle qualifies those that are interpolated, which neither the column list of an
 * insert nor `set` accepts, nor a table with an alias.
 */
import { type Column, type GetColumnData, getTableColumns, SQL, StringChunk } from "drizzle-orm";
import type { PgTable } from "drizzle-orm/pg-core";
import { type Reader, UnexpectedValueError } from "./readers.ts";

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
