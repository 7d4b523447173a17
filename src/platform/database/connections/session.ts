/**
 * What must be true of a server: it is a primary, commits are on disk before they are acknowledged, and what waits for
 * another transaction then sees its work, whatever defaults the database or user has.
 */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { boolean, listOf, text } from "../sql/readers.ts";
import { computed, selection } from "../sql/statements.ts";
import type { Result } from "./connection.ts";

/** A setting that a user or a database may have with a value that breaks what we promise. */
interface Need {
  readonly name: string;
  /** Those that suffice; the first is set where another one is found. */
  readonly values: readonly string[];
  readonly otherwise: string;
}

const needs: readonly Need[] = [
  {
    name: "synchronous_commit",
    values: ["on", "remote_apply"],
    otherwise: "what was acknowledged may be lost",
  },
  {
    name: "default_transaction_isolation",
    values: ["read committed"],
    otherwise: "requests that change the same thing are refused",
  },
  {
    name: "client_min_messages",
    values: ["notice", "warning", "log"],
    otherwise: "a commit that no standby has confirmed passes for one",
  },
];

const current = ({ name }: Need) => sql.raw(`current_setting('${name}')`);
/** Sets it also where it suffices, as the server may read its configuration again. */
const pinned = (need: Need) => {
  const suffices = sql.raw(`in ('${need.values.join("', '")}')`);
  const value = sql`case when ${current(need)} ${suffices} then ${current(need)} else '${sql.raw(need.values[0] ?? "")}' end`;
  return sql`set_config('${sql.raw(need.name)}', ${value}, false)`;
};

const session = (settingOf: (need: Need) => SQL) =>
  selection({
    isStandby: computed(boolean, sql`pg_is_in_recovery()`),
    settings: computed(listOf(text), sql`json_build_array(${sql.join(needs.map(settingOf), sql`, `)})`),
  });
const [own, shared] = [session(pinned), session(current)];

/**
 * Checks the server, and sets what the session needs; in a pooler's, which is shared, nothing is set, but refused.
 * @throws an error that means that the database is unavailable
 */
export async function checkSession(
  query: (text: string) => Promise<Result>,
  isPooled: boolean,
): Promise<void> {
  const selected = isPooled ? shared : own;
  const [row] = await query(new PgDialect().sqlToQuery(sql`select ${selected}`).sql);
  const found = selected.read(row);
  if (found.isStandby) throw unsuitable("the server is a standby, or is being recovered");
  for (const [index, { name, values, otherwise }] of needs.entries()) {
    const value = found.settings[index] ?? "";
    if (!values.includes(value))
      throw unsuitable(
        `${name} is ${value}, so that ${otherwise}: alter role … set ${name} = '${values[0]}'`,
      );
  }
}

export async function checkResponds(query: (text: string) => Promise<Result>): Promise<undefined> {
  await query("select 1");
}

function unsuitable(reason: string): Error {
  return Object.assign(new Error(reason), { code: "CONNECTION_UNSUITABLE" });
}
