/**
 * Statements that the query builder has no words for, written by hand and typed by what they select: a selection
 * is both the list of columns in the text and the reader of the rows.
 */
import { fillPlaceholders, type Placeholder, SQL, type SQLChunk, StringChunk, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type { Database } from "./database.ts";
import { type ReadBy, type Reader, UnexpectedAnswerError } from "./readers.ts";

/** An expression of SQL whose value can be read: the name of a column, or what {@link computed} makes. */
export interface Field<T> extends Reader<T> {
  getSQL(): SQL;
}

/** An expression that no column types, with the reader of its value. */
export function computed<T>(reader: Reader<T>, expression: SQL): Field<T> {
  return { read: (value) => reader.read(value), getSQL: () => expression };
}

/** Fields, by the names that they have in a row. */
export type Fields = Readonly<Record<string, Field<unknown>>>;

/** A row, as its fields are read. */
export type RowOf<F extends Fields> = { -readonly [Name in keyof F]: ReadBy<F[Name]> };

/**
 * What a statement selects or returns. Interpolated, it is the list `expression as "name", ...`; it reads a row
 * with these names, or an object of JSON made of one.
 */
export class Selection<F extends Fields> extends SQL implements Reader<RowOf<F>> {
  readonly #fields: readonly (readonly [string, Field<unknown>])[];

  constructor(fields: F) {
    const all = Object.entries(fields);
    const list = all.map(([name, field]) => sql`${field.getSQL()} as ${sql.identifier(name)}`);
    const { texts, params } = render(sql.join(list, sql`, `));
    // Without parameters it is one text, which need not be made again for each statement that it is a part of.
    super(params.length === 0 ? texts : list.flatMap((one, index) => (index === 0 ? [one] : [sql`, `, one])));
    this.#fields = all;
  }

  read(row: unknown): RowOf<F>;
  read(row: unknown): Record<string, unknown> {
    if (!isRecord(row)) throw new UnexpectedAnswerError("a row", row);
    const values: Record<string, unknown> = {};
    for (const [name, field] of this.#fields) {
      const value = row[name];
      if (value === undefined) throw new UnexpectedAnswerError(`the column ${name}`, value);
      values[name] = field.read(value);
    }
    return values;
  }

  /** The same of the outer side of a join. @returns undefined where this field, never null by itself, is null */
  readJoined(row: RawRow, field: keyof F & string): RowOf<F> | undefined {
    return row[field] === null ? undefined : this.read(row);
  }
}

/** Selects these: names of columns and computed expressions, by the names that they have in a row. */
export function selection<F extends Fields>(fields: F): Selection<F> {
  return new Selection(fields);
}

/** The rows of a statement that has the selection in it. */
export async function rows<F extends Fields>(
  db: Database,
  selected: Selection<F>,
  statement: SQL,
): Promise<RowOf<F>[]> {
  return (await rawRows(db, statement)).map((row) => selected.read(row));
}

/** How many rows a statement gives. */
export async function rowCount(db: Database, statement: SQL): Promise<number> {
  return (await rawRows(db, statement)).length;
}

/** A row as its driver has it. */
type RawRow = Record<string, unknown>;

/** The rows of a statement as its driver has them. */
export async function rawRows(db: Database, statement: SQL): Promise<RawRow[]> {
  const result: unknown = await db.execute(statement);
  // postgres.js answers an array of rows, PGlite an object that has them.
  if (Array.isArray(result)) return [...result];
  if (isRecord(result) && Array.isArray(result["rows"])) return [...result["rows"]];
  throw new Error("the driver answered neither an array nor an object with rows");
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

/** A value of a prepared statement's parameter. */
type ParameterValue = string | number | boolean | Uint8Array | null;

/** A statement that is only missing its parameters. */
type Prepared<Name extends string> = (values: Readonly<Record<Name, ParameterValue>>) => SQL;

/**
 * A statement whose text is made once, at its first use, however many names it is made of.
 * @param write gets a placeholder for each parameter
 */
export function prepared<const Name extends string>(
  parameters: readonly Name[],
  write: (placeholders: Readonly<Record<Name, Placeholder>>) => SQL,
): Prepared<Name> {
  let made: { readonly texts: StringChunk[]; readonly params: unknown[] } | undefined;
  return (values) => {
    made ??= render(write(placeholdersOf(parameters)));
    const { texts, params } = made;
    const filled = fillPlaceholders(params, values);
    return new SQL(
      texts.flatMap((text, index): SQLChunk[] => {
        return index < filled.length ? [text, sql.param(filled[index])] : [text];
      }),
    );
  };
}

function placeholdersOf<Name extends string>(parameters: readonly Name[]): Record<Name, Placeholder>;
function placeholdersOf(parameters: readonly string[]): Record<string, Placeholder> {
  return Object.fromEntries(parameters.map((name) => [name, sql.placeholder(name)]));
}

function render(statement: SQL): { texts: StringChunk[]; params: unknown[] } {
  const { sql: text, params } = new PgDialect().sqlToQuery(statement);
  const texts = text.split(/\$\d+/);
  if (texts.length !== params.length + 1) throw new Error("a statement has a dollar sign of its own");
  return { texts: texts.map((part) => new StringChunk(part)), params };
}
