/**
 * A response reports only what the synchronous standbys have confirmed. Who finds another's work done, whose wait may
 * have been cancelled, makes a commit of its own, which confirms everything before it (docs/operate/standbys.md).
 */
import { type SQL, sql } from "drizzle-orm";
import type { Confirm, Executor } from "./database.ts";

/** Writes a message to the log, so that the commit waits for the standbys. It takes no table and no lock. */
const message = sql`pg_logical_emit_message(true, 'confirm', ''::text)`;

/**
 * For the outermost select list of a statement that may find its change made: its commit waits for the standbys anyway.
 */
export const confirmUnless = (isChanged: SQL): SQL => sql`case when not ${isChanged} then ${message} end`;

/** Makes the commit of this transaction wait for the standbys, even if the transaction changes nothing. */
export async function confirmCommit(tx: Executor): Promise<void> {
  await tx.execute(sql`select ${message}`);
}

/**
 * Acts; if the outcome rests on another request's commit, confirms a commit and acts once more, as that may be made at
 * another primary. For an act that only reads, or was refused and rolled back.
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

/** Makes confirmed commits. Calls while one is running share the next one, or get the error of the running one. */
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
