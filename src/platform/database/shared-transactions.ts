/** Short transactions that share one: what comes while one runs is done in the next. Many of them need few commits. */
import { AsyncResource } from "node:async_hooks";
import { untraced } from "../base/tracing.ts";
import type { Database } from "./database.ts";

/** The most pieces of work in a transaction. */
const most = 32;

/** Work that is to be done in a transaction, for who waits for it. */
interface Piece {
  /** Does it in the transaction. @returns settles as the work does */
  within(tx: Database): Promise<void>;
  /** The transaction was committed. */
  committed(): void;
  /** Does it in a transaction of its own. */
  alone(): Promise<void>;
  failed(error: unknown): void;
}

/**
 * @param atOnce the most transactions at a time
 * @returns does work in a transaction, beside other work, and resolves when that is committed. If it is rolled back as
 *   one piece of work has failed, each is done again in a transaction of its own
 */
export function shareTransactions(
  db: Database,
  atOnce = 1,
): <T>(work: (tx: Database) => Promise<T>) => Promise<T> {
  const waiting: Piece[] = [];
  let running = 0;

  async function run(pieces: readonly Piece[]): Promise<void> {
    let isUndone = false;
    try {
      await db.transaction(async (tx) => {
        // All have ended before it is rolled back: no statement runs outside of it.
        const results = await Promise.allSettled(pieces.map((piece) => piece.within(tx)));
        const failed = results.find((result) => result.status === "rejected");
        isUndone = failed !== undefined;
        if (failed) throw failed.reason;
      });
      for (const piece of pieces) piece.committed();
    } catch (error) {
      // Where the commit itself has failed, it may have been done.
      if (isUndone && pieces.length > 1) await Promise.all(pieces.map((piece) => piece.alone()));
      else for (const piece of pieces) piece.failed(error);
    }
  }

  async function runAll(): Promise<void> {
    running += 1;
    while (waiting.length > 0) await run(waiting.splice(0, most));
    running -= 1;
  }

  return <T>(work: (tx: Database) => Promise<T>) => {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    // It belongs to the caller's trace, and the transaction to none.
    const inContext = AsyncResource.bind(work);
    let result: { readonly value: T } | undefined;
    waiting.push({
      async within(tx) {
        result = { value: await inContext(tx) };
      },
      committed: () => result && resolve(result.value),
      alone: () => db.transaction(inContext).then(resolve, reject),
      failed: reject,
    });
    if (running < atOnce) void untraced(runAll);
    return promise;
  };
}
