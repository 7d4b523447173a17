/**
 * What the ordinary user must not be. Whoever takes a process over, or finds a way to run statements of their own,
 * has the rights of that user: to read and write rows, and not to drop a table or to change what it means.
 */
import { sql } from "drizzle-orm";
import { SettingsError } from "../settings/settings.ts";
import { arrayLiteral, type Executor } from "./database.ts";
import type { Migrations } from "./migrations.ts";
import { boolean, nullable, text } from "./readers.ts";
import { databaseTable } from "./settings.ts";
import { computed, rows, selection } from "./statements.ts";

/**
 * Checks that the user of these connections is neither a superuser nor an owner of the service's schemas or tables.
 * @throws SettingsError if it is; another error if the database does not respond
 */
export async function requireOrdinaryUser(
  db: Executor,
  { schema, librarySchemas = [] }: Migrations,
): Promise<void> {
  const schemas = arrayLiteral([schema, ...librarySchemas.map((library) => library.schema)]);
  const isOurs = sql`nspname = any(${schemas}::text[])`;
  // A member of the role that owns something may do all that the owner may.
  const owned = sql`
    select 'the schema ' || nspname as name from pg_namespace
    where ${isOurs} and pg_has_role(nspowner, 'MEMBER')
    union all
    select 'the table ' || nspname || '.' || relname from pg_class
    join pg_namespace on pg_namespace.oid = relnamespace
    where ${isOurs} and relkind in ('r', 'p') and pg_has_role(relowner, 'MEMBER')`;
  const found = selection({
    user: computed(text, sql`current_user::text`),
    isSuperuser: computed(boolean, sql`(select rolsuper from pg_roles where rolname = current_user)`),
    owned: computed(nullable(text), sql`(select min(name) from (${owned}) as owned)`),
  });
  const [row] = await rows(db, found, sql`select ${found}`);
  if (row === undefined) throw new Error("the database did not say who its user is");
  const excess = row.isSuperuser ? "is a superuser" : row.owned === null ? undefined : `owns ${row.owned}`;
  if (excess === undefined) return;
  const { example } = databaseTable.DB_USER;
  const what =
    `is ${row.user}, who ${excess}; in production it must be a user who only reads and writes rows. ` +
    "Create one, and run the migrations with it as DB_USER, which grants it what it needs: " +
    "docs/deployment.md, PostgreSQL";
  throw new SettingsError([{ name: "DB_USER", what, example: `DB_USER=${example}` }]);
}
