/**
 * What must be true of the server at the other end of a connection:
 *
 * 1. The server is a primary. One that is being recovered has only what it has replayed, and not what was acknowledged
 *    since.
 * 2. Commits are on disk before they are acknowledged, whatever default the database or the user has.
 */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { boolean, text } from "../sql/readers.ts";
import { computed, selection } from "../sql/statements.ts";
import type { Result } from "./connection.ts";

/** Values of `synchronous_commit` with which a commit is durable, on the synchronous standbys too, when it returns. */
const durable = ["on", "remote_apply"];

const commits = sql`current_setting('synchronous_commit')`;
const isWeak = sql.raw(`current_setting('synchronous_commit') not in ('${durable.join("', '")}')`);

const session = (commitSetting: typeof commits) =>
  selection({
    isStandby: computed(boolean, sql`pg_is_in_recovery()`),
    commits: computed(text, commitSetting),
  });

/** Reads the setting as it is. */
const plain = session(commits);
/**
 * Reads the setting after it has been set for the session, to a stronger value if it is weak. One that the session has
 * not set itself would change when the server reads its configuration again.
 */
const pinned = session(
  sql`set_config('synchronous_commit', case when ${isWeak} then 'on' else ${commits} end, false)`,
);

/**
 * Checks the server, and sets the session's `synchronous_commit`: to what it is, or to `on` if that is weaker.
 * @param isPooled whether the session belongs to a pooler and is shared: then it is not set, and a weak one is refused
 * @throws an error that means that the database is unavailable
 */
export async function checkSession(
  query: (text: string) => Promise<Result>,
  isPooled: boolean,
): Promise<void> {
  const selected = isPooled ? plain : pinned;
  const [row] = await query(new PgDialect().sqlToQuery(sql`select ${selected}`).sql);
  const found = selected.read(row);
  if (found.isStandby) throw unsuitable("the server is a standby, or is being recovered");
  if (!durable.includes(found.commits)) {
    throw unsuitable(
      `synchronous_commit is ${found.commits}, so that what was acknowledged may be lost: ` +
        "alter role … set synchronous_commit = on",
    );
  }
}

/** Checks only that the server responds. */
export async function checkResponds(query: (text: string) => Promise<Result>): Promise<undefined> {
  await query("select 1");
}

function unsuitable(reason: string): Error {
  return Object.assign(new Error(reason), { code: "CONNECTION_UNSUITABLE" });
}
