/** What the ordinary user must not be: whoever takes a process over has that user's rights. */
import { type SQL, sql } from "drizzle-orm";
import { SettingsError } from "../../settings/settings.ts";
import type { Executor } from "../database.ts";
import { databaseTable } from "../settings.ts";
import { boolean, nullable, text } from "../sql/readers.ts";
import { computed, rows, selection } from "../sql/statements.ts";
import type { Migrations } from "./migrations.ts";

/** @throws SettingsError if the user is a superuser, may create roles, or owns the database, the schema or a table */
export async function requireOrdinaryUser(db: Executor, { schema }: Migrations): Promise<void> {
  const isOurs = sql`nspname = ${schema}`;
  // A member of a role may do all that the role may.
  const canBecome = (attribute: SQL) =>
    sql`exists (select from pg_roles where ${attribute} and pg_has_role(oid, 'MEMBER'))`;
  const owned = sql`
    select 'the database' as name from pg_database
    where datname = current_database() and pg_has_role(datdba, 'MEMBER')
    union all
    select 'the schema ' || nspname as name from pg_namespace
    where ${isOurs} and pg_has_role(nspowner, 'MEMBER')
    union all
    select 'the table ' || nspname || '.' || relname from pg_class
    join pg_namespace on pg_namespace.oid = relnamespace
    where ${isOurs} and relkind in ('r', 'p') and pg_has_role(relowner, 'MEMBER')`;
  const found = selection({
    user: computed(text, sql`current_user::text`),
    isSuperuser: computed(boolean, canBecome(sql`rolsuper`)),
    // Before PostgreSQL 16 they can make themselves members of any role but a superuser's.
    mayCreateRoles: computed(boolean, canBecome(sql`rolcreaterole`)),
    owned: computed(nullable(text), sql`(select min(name) from (${owned}) as owned)`),
  });
  const [row] = await rows(db, found, sql`select ${found}`);
  if (row === undefined) throw new Error("the database did not say who its user is");
  const excess = excessOf(row);
  if (excess === undefined) return;
  const { example } = databaseTable.DB_USER;
  const what =
    `is ${row.user}, who ${excess}; in production it must be a user who only reads and writes rows. ` +
    "Create one, and run the migrations with it as DB_USER, which grants it what it needs: " +
    "docs/deployment.md, PostgreSQL";
  throw new SettingsError([{ name: "DB_USER", what, example: `DB_USER=${example}` }]);
}

interface Powers {
  readonly isSuperuser: boolean;
  readonly mayCreateRoles: boolean;
  readonly owned: string | null;
}

function excessOf({ isSuperuser, mayCreateRoles, owned }: Powers): string | undefined {
  if (isSuperuser) return "is a superuser";
  if (mayCreateRoles) return "may create roles";
  return owned === null ? undefined : `owns ${owned}`;
}
