/**
 * What must be true of the server at the other end of a connection. It is a primary: one that is being recovered
 * knows only what it has replayed, and not what was acknowledged since. And its commits are on disk before they are
 * acknowledged, whatever the database or the user has as a default.
 */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import type { Result } from "./connection.ts";
import { boolean, text } from "./readers.ts";
import { computed, selection } from "./statements.ts";

/** Values of `synchronous_commit` that wait for what is meant to be durable, standbys included. */
const durable = ["on", "remote_apply"];

const commits = sql`current_setting('synchronous_commit')`;
const isWeak = sql.raw(`current_setting('synchronous_commit') not in ('${durable.join("', '")}')`);

const session = (commitSetting: typeof commits) =>
  selection({
    isStandby: computed(boolean, sql`pg_is_in_recovery()`),
    commits: computed(text, commitSetting),
  });

const asItIs = session(commits);
const corrected = session(
  sql`case when ${isWeak} then set_config('synchronous_commit', 'on', false) else ${commits} end`,
);

/**
 * Checks the server, and corrects the session.
 * @param isPooled the session belongs to a pooler and is shared, so that it cannot be corrected
 * @throws an error that means that the database is unavailable
 */
export async function checkSession(
  query: (text: string) => Promise<Result>,
  isPooled: boolean,
): Promise<void> {
  const selected = isPooled ? asItIs : corrected;
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

function unsuitable(reason: string): Error {
  return Object.assign(new Error(reason), { code: "CONNECTION_UNSUITABLE" });
}
