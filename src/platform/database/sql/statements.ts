/**
 * Statements written by hand and typed by what they select: a selection is the list of columns and the rows' reader.
 */
import {
  fillPlaceholders,
  Name,
  type Placeholder,
  type QueryWithTypings,
  SQL,
  type SQLChunk,
  type SQLWrapper,
  StringChunk,
  sql,
  Table,
} from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { unavailable } from "../../base/errors.ts";
import { untraced } from "../../base/tracing.ts";
import type { Executor } from "../database.ts";
import { boolean, type ReadBy, type Reader, UnexpectedValueError } from "./readers.ts";

/** An SQL expression whose value can be read: the name of a column, or a {@link computed} expression. */
export interface Field<T> extends Reader<T> {
  getSQL(): SQL;
}

/** An expression that no column types, with the reader of its value. */
export function computed<T>(reader: Reader<T>, expression: SQL): Field<T> {
  return { read: (value) => reader.read(value), getSQL: () => expression };
}

type Fields = Readonly<Record<string, Field<unknown>>>;

export type RowOf<F extends Fields> = { -readonly [Name in keyof F]: ReadBy<F[Name]> };

/** The columns that a statement selects: interpolated, the list `expression as "name", ...`; it reads such rows. */
class Selection<F extends Fields> extends SQL implements Reader<RowOf<F>> {
  readonly #fields: readonly (readonly [string, Field<unknown>])[];

  constructor(fields: F) {
    const all = Object.entries(fields);
    const list = all.map(([name, field]) => sql`${field.getSQL()} as ${sql.identifier(name)}`);
    const { texts, query } = render(sql.join(list, sql`, `));
    // Without parameters the list is one text, which need not be rendered again for each statement.
    super(
      query.params.length === 0
        ? [...texts]
        : list.flatMap((one, index) => (index === 0 ? [one] : [sql`, `, one])),
    );
    this.#fields = all;
  }

  read(row: unknown): RowOf<F>;
  read(row: unknown): Record<string, unknown> {
    if (!isRecord(row)) throw new UnexpectedValueError("a row", row);
    const values: Record<string, unknown> = {};
    for (const [name, field] of this.#fields) {
      const value = row[name];
      if (value === undefined) throw new UnexpectedValueError(`the column ${name}`, value);
      values[name] = field.read(value);
    }
    return values;
  }

  /** Reads a row of the outer side of a join; undefined if `field`, never null in a joined row, is null. */
  readJoined(row: RawRow, field: keyof F & string): RowOf<F> | undefined {
    return row[field] === null ? undefined : this.read(row);
  }
}

export function selection<F extends Fields>(fields: F): Selection<F> {
  return new Selection(fields);
}

/** The rows of a statement that has the selection in it. */
export async function rows<F extends Fields>(
  db: Executor,
  selected: Selection<F>,
  statement: SQL,
): Promise<RowOf<F>[]> {
  return (await rawRows(db, statement)).map((row) => selected.read(row));
}

/** The row of a statement that always returns one. @throws UnexpectedValueError if it returned none */
export async function onlyRow<F extends Fields>(
  db: Executor,
  selected: Selection<F>,
  statement: SQL,
): Promise<RowOf<F>> {
  const [row] = await rows(db, selected, statement);
  if (!row) throw new UnexpectedValueError("a row", row);
  return row;
}

export async function rowCount(db: Executor, statement: SQL): Promise<number> {
  return (await rawRows(db, statement)).length;
}

type RawRow = Record<string, unknown>;

export async function rawRows(db: Executor, statement: SQL): Promise<RawRow[]> {
  const result: unknown = await db.execute(quickly(statement));
  // postgres.js returns an array of rows, PGlite an object with the rows.
  if (Array.isArray(result)) return [...result];
  if (isRecord(result) && Array.isArray(result["rows"])) return [...result["rows"]];
  throw new Error("the driver returned neither an array nor an object with rows");
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

type ParameterValue = string | number | boolean | Uint8Array | null;

type Prepared<Name extends string> = (values: Readonly<Record<Name, ParameterValue>>) => SQL;

/** A statement whose text is rendered once, at its first use. @param write gets a placeholder for each parameter */
export function prepared<const Name extends string>(
  parameters: readonly Name[],
  write: (placeholders: Readonly<Record<Name, Placeholder>>) => SQL,
): Prepared<Name> {
  let rendered: Rendering | undefined;
  return (values) => {
    // Nothing of the request that comes first may stay in it.
    rendered ??= untraced(() => render(write(placeholdersOf(parameters))));
    const { query, texts } = rendered;
    const params = fillPlaceholders(query.params, values);
    const chunks = texts.flatMap((piece, index): SQLChunk[] =>
      index < params.length ? [piece, sql.param(params[index])] : [piece],
    );
    return new RenderedStatement({ ...query, params }, chunks);
  };
}

/** A statement's text, whole and in the pieces between its parameters. */
interface Rendering {
  readonly query: QueryWithTypings;
  readonly texts: readonly StringChunk[];
}

/** A statement that Drizzle need not render. With its chunks it may become part of another one. */
class RenderedStatement extends SQL {
  readonly #query: QueryWithTypings;

  constructor(query: QueryWithTypings, chunks: SQLChunk[]) {
    super(chunks);
    this.#query = query;
  }

  override toQuery(): QueryWithTypings {
    return this.#query;
  }
}

/** The texts of tables and names, which are the same in all statements. */
const textsOfNames = new WeakMap<object, string>();

/**
 * Renders a statement as Drizzle does, but in a third of the time, if it has only texts, names, tables and plain values.
 * Drizzle asks of each value whether it is one of a dozen kinds of things.
 */
function quickly(statement: SQL): SQL {
  if (statement instanceof RenderedStatement) return statement;
  const params: unknown[] = [];
  const typings: "none"[] = [];
  function textOf(chunk: SQLChunk): string {
    if (chunk instanceof StringChunk) return chunk.value.join("");
    if (chunk === undefined) return "";
    if (chunk instanceof SQL) return chunk.queryChunks.map(textOf).join("");
    if (chunk instanceof Table || chunk instanceof Name) {
      const text = textsOfNames.get(chunk) ?? new PgDialect().sqlToQuery(sql`${chunk}`).sql;
      textsOfNames.set(chunk, text);
      return text;
    }
    typings.push("none");
    return `$${params.push(chunk)}`;
  }
  const query = { sql: textOf(statement), params, typings };
  const isPlain = params.every((value) => value === null || typeof value !== "object");
  return isPlain ? new RenderedStatement(query, statement.queryChunks) : statement;
}

/** Whether the server that runs the statement is a standby, for the selection of the statement's only row. */
export const isStandby = computed(boolean, sql`pg_is_in_recovery()`);

/**
 * The only row of a look-up that only the primary may serve: a standby may not know yet what was issued or revoked.
 * @throws unavailable if it is from a standby, or if there is none
 */
export function fromPrimary<Row extends { readonly isStandby: boolean }>(row: Row | undefined): Row {
  if (row?.isStandby === false) return row;
  throw unavailable("The database", new Error(row ? "it is a standby" : "it returned no row"));
}

/** The items of an array of texts, for `from`; a subquery, or a prepared statement would be planned anew each time. */
export function arrayItems(texts: SQLWrapper): SQL {
  return sql`unnest((select ${texts}::text[]))`;
}

/**
 * Whether a column is among the values of a query, which runs once; with `in` it may run for each row, its limit too.
 * @param value comes first in each index that contains it, or PostgreSQL may read the whole index for each value
 */
export function isAmong(value: SQLWrapper, query: SQL): SQL {
  return sql`${value} = any(array(${query}))`;
}

/** Where a row is, for {@link isAmong}. The query must lock the rows; one that was updated meanwhile is not found. */
export const ctid: SQL = sql`ctid`;

/** The text of a member of a JSON object; null where the object has none. */
export function jsonMember<T extends object>(object: Field<T>, member: keyof T & string): SQL {
  return sql`(${object.getSQL()} ->> ${sql.raw(`'${member.replaceAll("'", "''")}'`)})`;
}

/** A moment as a text: RFC 3339, UTC, milliseconds. */
export function isoTime(moment: SQL): SQL {
  return sql`to_char(${moment} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;
}

/** A moment in milliseconds since the epoch, or an interval in milliseconds; not rounded. */
export function epochMs(moment: SQL): SQL {
  return sql`(extract(epoch from ${moment}) * 1000)::float8`;
}

function placeholdersOf<Name extends string>(parameters: readonly Name[]): Record<Name, Placeholder>;
function placeholdersOf(parameters: readonly string[]): Record<string, Placeholder> {
  return Object.fromEntries(parameters.map((name) => [name, sql.placeholder(name)]));
}

function render(statement: SQL): Rendering {
  const query = new PgDialect().sqlToQuery(statement);
  const texts = query.sql.split(/\$\d+/);
  if (texts.length !== query.params.length + 1) throw new Error("a statement has a dollar sign of its own");
  return { query, texts: texts.map((part) => new StringChunk(part)) };
}
