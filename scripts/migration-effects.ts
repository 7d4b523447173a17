/**
 * The effects of a migration on requests that are served while it runs, and on the version before, which goes on
 * serving. The migration runs on an embedded database that has all earlier ones, and PostgreSQL's catalogue shows how
 * the existing tables changed. The text of the migration is not read, so it makes no difference how a statement is
 * written.
 */
import type { PGlite, Transaction } from "@electric-sql/pglite";
import { concurrentIndexes } from "../src/platform/database/migrations/run-migrations.ts";

/** The rules: the harm that breaking each would do to an existing table, and what to do in its place. */
export const rules = {
  "rewrites-table":
    "Nobody can use the table meanwhile. Add a column beside the old one, have the program fill it in small steps, and remove the old one in a later version.",
  "builds-index":
    "Nobody can write to the table meanwhile. Use CREATE INDEX CONCURRENTLY (`.concurrently()` in the schema) in a migration of its own; for a partitioned table, build the index of each partition that way, and then the table's.",
  "validates-constraint":
    "Nobody can use the table meanwhile. Add the constraint NOT VALID, and validate it in the next migration.",
  "sets-not-null":
    "Nobody can use the table meanwhile. Once every version that serves fills the column, add CHECK (… IS NOT NULL) NOT VALID, validate it in the next migration, and set NOT NULL in the one after that.",
  "requires-column":
    "The version before relies on the column's default, or does not know the column, so its inserts would fail. Give the column a default, or keep its default.",
  "constrains-rows":
    "The version before may write rows that it forbids, or delete rows that it needs, even if existing rows are not checked. Add it with the version after the last one that does so.",
  "adds-trigger":
    "Writes of the version before run the trigger too, and may be refused by it, or wait for it. Have the program do its work, in every version that serves.",
  removes:
    "The version before may need it. Expand first and contract later: it can go, or get another name, with the version after the last one that uses it.",
  "changes-rows":
    "The rows are locked until all are changed. Have the program change them in small steps, as the janitor does.",
  "reads-locked":
    "Nobody can use the table until all rows are read. Read them in a migration of its own, without a lock that keeps others away.",
} as const;

export type Rule = keyof typeof rules;

/** A rule that a migration breaks. */
export interface Effect {
  readonly rule: Rule;
  /** The name of the table, column, index, constraint or trigger. */
  readonly subject: string;
}

type Session = Pick<PGlite | Transaction, "query">;

/** A row of the catalogue that belongs to a table. */
interface Part {
  readonly id: string;
  readonly table: number;
  readonly name: string;
}

interface Table extends Part {
  /** The relfilenode; another number once the rows were rewritten. */
  readonly file: number;
}

interface Column extends Part {
  readonly required: boolean;
  readonly filled: boolean;
}

interface Index extends Part {
  readonly file: number;
  readonly unique: boolean;
  readonly definition: string;
}

interface Constraint extends Part {
  readonly valid: boolean;
  /** Whether the constraint can be added NOT VALID, without reading the rows; an exclusion constraint cannot. */
  readonly mayBeInvalid: boolean;
  readonly definition: string;
  /**
   * The table that a foreign key refers to, if its rows keep the rows that they refer to from being deleted; otherwise
   * 0.
   */
  readonly holdsRowsOf: number;
}

interface Trigger extends Part {
  readonly definition: string;
}

interface Catalogue {
  readonly tables: readonly Table[];
  readonly columns: readonly Column[];
  readonly indexes: readonly Index[];
  readonly constraints: readonly Constraint[];
  readonly triggers: readonly Trigger[];
}

interface Lock {
  readonly table: number;
  readonly mode: string;
}

const ours = `relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pg_toast'::regnamespace)`;
/** The name of a relation; a partition and its parts have the names of the partitioned table. */
const nameOf = (oid: string) =>
  `coalesce((select inhparent from pg_inherits where inhrelid = ${oid}), ${oid})::regclass::text`;

async function read(session: Session): Promise<Catalogue> {
  const tables = await session.query<Table>(`
    select oid::text as id, oid::int as table, ${nameOf("oid")} as name, relfilenode::int as file
    from pg_class where relkind in ('r', 'p') and ${ours}`);
  const columns = await session.query<Column>(`
    select attrelid || '/' || attnum as id, attrelid::int as table, ${nameOf("attrelid")} || '.' || attname as name,
      attnotnull as required, atthasdef or attidentity <> '' as filled
    from pg_attribute join pg_class on pg_class.oid = attrelid
    where relkind in ('r', 'p') and attnum > 0 and not attisdropped and ${ours}`);
  const indexes = await session.query<Index>(`
    select indexrelid::text as id, indrelid::int as table, ${nameOf("indexrelid")} as name,
      relfilenode::int as file, indisunique as unique, pg_get_indexdef(indexrelid) as definition
    from pg_index join pg_class on pg_class.oid = indexrelid where ${ours}`);
  const constraints = await session.query<Constraint>(`
    select pg_constraint.oid::text as id, conrelid::int as table, ${nameOf("conrelid")} || '.' || conname as name,
      convalidated as valid, contype <> 'x' as "mayBeInvalid", pg_get_constraintdef(pg_constraint.oid) as definition,
      case when contype = 'f' and confdeltype in ('a', 'r') then confrelid::int else 0 end as "holdsRowsOf"
    from pg_constraint where conrelid <> 0 and contype in ('c', 'f', 'x') and conparentid = 0`);
  const triggers = await session.query<Trigger>(`
    select oid::text as id, tgrelid::int as table, ${nameOf("tgrelid")} || '.' || tgname as name,
      pg_get_triggerdef(oid) as definition
    from pg_trigger where not tgisinternal and tgparentid = 0`);
  return {
    tables: tables.rows,
    columns: columns.rows,
    indexes: indexes.rows,
    constraints: constraints.rows,
    triggers: triggers.rows,
  };
}

async function heldLocks(session: Session): Promise<readonly Lock[]> {
  const { rows } = await session.query<Lock>(`
    select relation::int as table, mode from pg_locks
    where locktype = 'relation' and pid = pg_backend_pid() and granted`);
  return rows;
}

/**
 * How a migration was run: in a transaction, with the locks that it held at the end, or outside of one because
 * {@link concurrentIndexes} allows it: then it holds no locks, and building an index blocks nobody.
 */
type Run = { readonly locks: readonly Lock[] } | "concurrently";

/** The state before and after a migration, and the effects that were found. */
class Change {
  readonly effects = new Map<string, Effect>();
  readonly before: Catalogue;
  readonly after: Catalogue;
  readonly run: Run;
  readonly #tables: ReadonlyMap<number, readonly [Table, Table]>;

  constructor(before: Catalogue, after: Catalogue, run: Run) {
    this.before = before;
    this.after = after;
    this.run = run;
    const kept = new Map(after.tables.map((table) => [table.table, table]));
    this.#tables = new Map(
      before.tables.flatMap((old) => {
        const now = kept.get(old.table);
        return now?.name === old.name ? [[old.table, [old, now]]] : [];
      }),
    );
  }

  report(rule: Rule, subject: string): void {
    this.effects.set(`${rule} ${subject}`, { rule, subject });
  }

  /** Whether the part's table existed before, and still has its name. */
  isKept({ table }: Pick<Part, "table">): boolean {
    return this.#tables.has(table);
  }

  isRewritten({ table }: Part): boolean {
    const [old, now] = this.#tables.get(table) ?? [];
    return old?.file !== now?.file;
  }

  /** Whether a lock of this mode on the part's table was held until the end. */
  holds({ table }: Part, mode: string): boolean {
    return (
      this.run !== "concurrently" && this.run.locks.some((lock) => lock.table === table && lock.mode === mode)
    );
  }
}

function compareTables(change: Change): void {
  for (const table of change.before.tables) {
    if (!change.isKept(table)) change.report("removes", table.name);
    if (change.isRewritten(table)) change.report("rewrites-table", table.name);
    if (change.holds(table, "RowExclusiveLock")) change.report("changes-rows", table.name);
    const isLocked = change.holds(table, "AccessExclusiveLock");
    if (isLocked && change.holds(table, "AccessShareLock")) change.report("reads-locked", table.name);
  }
}

function compareColumns(change: Change): void {
  const [before, after] = [byId(change.before.columns), byId(change.after.columns)];
  for (const old of change.before.columns.filter((column) => change.isKept(column))) {
    const now = after.get(old.id);
    if (now?.name !== old.name) {
      change.report("removes", old.name);
      continue;
    }
    if (now.required && !old.required && !isChecked(old, change.before))
      change.report("sets-not-null", old.name);
    if (now.required && old.filled && !now.filled) change.report("requires-column", old.name);
  }
  for (const now of change.after.columns.filter((column) => change.isKept(column)))
    if (!before.has(now.id) && now.required && !now.filled) change.report("requires-column", now.name);
}

function compareIndexes(change: Change): void {
  const [before, after] = [change.before.indexes, change.after.indexes].map((all) =>
    all.filter((index) => change.isKept(index)),
  );
  const left = new Set(after?.flatMap(({ id, table, name }) => [id, `${table} ${name}`]));
  for (const { id, table, name, unique } of before ?? []) {
    // ON CONFLICT, and code that reads errors, need the index. An index that was made anew has another id.
    if (unique && !left.has(id) && !left.has(`${table} ${name}`)) change.report("removes", name);
  }
  const known = new Set(before?.flatMap(({ id, definition }) => [id, definition]));
  for (const { id, definition, name, unique } of after ?? [])
    if (unique && !known.has(id) && !known.has(definition)) change.report("constrains-rows", name);
  if (change.run === "concurrently") return;
  // The index of a partitioned table has no file; an index that was made anew may keep the file.
  const files = new Set(before?.map(({ file }) => file)).add(0);
  for (const index of after ?? [])
    if (!files.has(index.file) && !change.isRewritten(index)) change.report("builds-index", index.name);
}

function compareConstraints(change: Change): void {
  const before = byId(change.before.constraints);
  // A constraint that was made anew, as when a column gets a longer type, has another id and forbids nothing new.
  const textOf = ({ name, definition }: Constraint) => `${name} ${definition.replace(/ NOT VALID$/, "")}`;
  const known = new Set(change.before.constraints.map(textOf));
  for (const now of change.after.constraints) {
    const old = before.get(now.id);
    const isOfKept = change.isKept(now);
    // Rows of a new table also keep rows of an existing one from being deleted.
    const isFelt = isOfKept || change.isKept({ table: now.holdsRowsOf });
    if (isFelt && !old && !known.has(textOf(now))) change.report("constrains-rows", now.name);
    if (!isOfKept || !now.mayBeInvalid || !now.valid || old?.valid) continue;
    if (!old || change.holds(now, "AccessExclusiveLock")) change.report("validates-constraint", now.name);
  }
}

function compareTriggers(change: Change): void {
  const textOf = ({ name, definition }: Trigger) => `${name} ${definition}`;
  const known = new Set(change.before.triggers.map(textOf));
  for (const now of change.after.triggers.filter((trigger) => change.isKept(trigger)))
    if (!known.has(textOf(now))) change.report("adds-trigger", now.name);
}

/** Whether a valid constraint already says that the column is not null, so that PostgreSQL reads no rows. */
function isChecked({ table, name }: Column, { constraints }: Catalogue): boolean {
  const column = name.slice(name.lastIndexOf(".") + 1);
  const said = [`CHECK ((${column} IS NOT NULL))`, `CHECK (("${column}" IS NOT NULL))`];
  return constraints.some((one) => one.table === table && one.valid && said.includes(one.definition));
}

const byId = <P extends Part>(parts: readonly P[]) => new Map(parts.map((part) => [part.id, part]));

/** Runs a migration as the program does. @returns the rules that it breaks, with their subjects */
export async function effectsOf(database: PGlite, statements: readonly string[]): Promise<Effect[]> {
  // With an empty search path, every name is shown with its schema.
  await database.exec("set search_path = ''");
  const before = await read(database);
  let run: Run = "concurrently";
  if (concurrentIndexes(statements)) for (const statement of statements) await database.exec(statement);
  else {
    run = await database.transaction(async (transaction) => {
      for (const statement of statements) await transaction.exec(statement);
      return { locks: await heldLocks(transaction) };
    });
  }
  const change = new Change(before, await read(database), run);
  const all = [compareTables, compareColumns, compareIndexes, compareConstraints, compareTriggers];
  for (const compare of all) compare(change);
  return [...change.effects.values()];
}
