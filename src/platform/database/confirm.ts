/**
 * What is acknowledged is confirmed by the standbys that commits wait for, so that no failover takes it back. A commit
 * of the request's own has waited for them. What it finds done by another may be visible without: the wait of that
 * commit was cancelled, and its request answered 503.
 */
import { sql } from "drizzle-orm";
import type { Confirm, Executor } from "./database.ts";

/** What came of acting: a value, or an error that was thrown. */
export type Outcome<T> = { readonly value: T } | { readonly error: unknown };

/**
 * Acts, and where that has found done what another has committed, acts once more after a confirmed commit. What is
 * found then was there before that commit, on the same server or on one that it had been promoted from. The first look
 * alone says too little: the commit after it may be another primary's, which does not have what was found.
 */
export async function confirmFound<T>(
  confirm: Confirm,
  act: () => Promise<T>,
  isFound: (outcome: Outcome<T>) => boolean,
): Promise<T> {
  const outcome = await act().then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  );
  if (isFound(outcome)) {
    await confirm();
    return act();
  }
  if ("error" in outcome) throw outcome.error;
  return outcome.value;
}

/**
 * The commit is that of a message in the log: it takes no table and no lock. Those who ask while one is running share
 * the next one, or its error: where it is not confirmed, another would only be waited for as long again.
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
      await db.execute(sql`select pg_logical_emit_message(true, 'gatepost', ''::text)`);
    } finally {
      running = undefined;
    }
  }

  return () => {
    next ??= commitAfter(running);
    return next;
  };
}
