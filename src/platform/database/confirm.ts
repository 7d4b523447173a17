/**
 * What is acknowledged is confirmed by the standbys that commits wait for, so that no failover takes it back. A commit
 * of the request's own has waited for them. What it finds done by another may be visible without: the wait of that
 * commit was cancelled, and its request answered 503. So whoever finds it makes a commit after it.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Confirm, Executor } from "./database.ts";

/** A message in the log, which makes a commit wait for the standbys. It takes no table and no lock. */
const message = sql`pg_logical_emit_message(true, 'confirm', ''::text)`;

/**
 * For the outermost list of a statement that has nothing to change where another did before: then its commit waits for
 * the standbys all the same, and for the other's before it, as both are in the log of one server.
 * @param isChanged whether the statement changes something
 */
export const confirmUnless = (isChanged: SQL): SQL => sql`case when not ${isChanged} then ${message} end`;

/** The same for a transaction that has found done what it was to do. */
export async function confirmCommit(tx: Executor): Promise<void> {
  await tx.execute(sql`select ${message}`);
}

/**
 * The same for what only looks, or was refused and rolled back: it acts once more after a confirmed commit. The first
 * look alone says too little, as that commit may be another primary's, which does not have what was found.
 * @param isFound whether what came of it rests on what another has committed
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
 * Those who ask while a commit is running share the next one, or the error of the running one: where that is not
 * confirmed, another would only be waited for as long again.
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
