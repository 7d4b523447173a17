/**
 * A response may report only what the synchronous standbys have confirmed; otherwise a failover could take it back. A
 * request's own commit waits for them. But a request may find another one's work done, such as a token that is already
 * revoked or an id that is already taken, whose commit did not wait: the wait was cancelled, and its caller got 503.
 * The request that finds this makes a commit of its own. Once that is confirmed, so is everything before it in the log.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Confirm, Executor } from "./database.ts";

/** Writes a message to the log, so that the commit waits for the standbys. It takes no table and no lock. */
const message = sql`pg_logical_emit_message(true, 'confirm', ''::text)`;

/**
 * An expression for the outermost select list of a statement that has nothing to change if another request has made the
 * change before. Unless the statement changes something, the expression writes a message to the log; so its commit
 * waits for the standbys in either case, and the other request's commit before it is confirmed with it.
 * @param isChanged whether the statement changes something
 */
export const confirmUnless = (isChanged: SQL): SQL => sql`case when not ${isChanged} then ${message} end`;

/**
 * Makes the commit of this transaction wait for the standbys, even if the transaction changes nothing. For a
 * transaction that has found its work done by another request.
 */
export async function confirmCommit(tx: Executor): Promise<void> {
  await tx.execute(sql`select ${message}`);
}

/**
 * Acts, and if the outcome rests on what another request has committed, makes a confirmed commit and acts once more.
 * For an act that only reads, or was refused and rolled back, so that no commit of its own waits. The first outcome
 * alone proves nothing after the commit either: that may be made at another primary, which lacks what was found.
 * @param isFound whether the outcome rests on another request's commit
 * @returns the outcome of the last act; rejects with its error
 * @throws the error of `confirm` if the standbys do not confirm the commit
 */
export async function confirmFound<T>(
  confirm: Confirm,
  act: () => Promise<T>,
  isFound: (outcome: PromiseSettledResult<T>) => boolean,
): Promise<T> {
  const [outcome] = await Promise.allSettled([act()]);
  if (isFound(outcome)) {
    await confirm();
    return act();
  }
  if (outcome.status === "rejected") throw outcome.reason;
  return outcome.value;
}

/**
 * Creates a function that makes a confirmed commit. Calls while a commit is running share the next one, which begins
 * when the running one has ended. If the running one is not confirmed they get its error at once, as another commit
 * would only be waited for as long again.
 */
export function createConfirm(db: Executor): Confirm {
  let running: Promise<void> | undefined;
  let next: Promise<void> | undefined;

  async function commitAfter(before: Promise<void> | undefined): Promise<void> {
    try {
      await before;
      running = next;
    } finally {
      next = undefined;
    }
    try {
      await confirmCommit(db);
    } finally {
      running = undefined;
    }
  }

  return () => {
    next ??= commitAfter(running);
    return next;
  };
}
