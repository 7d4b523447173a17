/** Runs transactions, each as a whole on one connection. */
import { type Connection, connectionLost, type QueryOptions, type Result } from "./connection.ts";

export type Query = (text: string, options?: QueryOptions) => Promise<Result>;

/** Milliseconds; 0 is no limit. */
export interface TransactionLimits {
  /** How long a statement waits for a lock. */
  readonly lock: number;
  /** How long PostgreSQL waits for the next statement, and then ends the session with its locks. */
  readonly idle: number;
}

export const defaultLimits: TransactionLimits = { lock: 2_000, idle: 5_000 };

/** Runs work in a transaction on the connection: commits its result, rolls back if it throws. */
export async function runTransaction<T>(
  connection: Connection,
  work: (query: Query) => Promise<T>,
  { lock, idle } = defaultLimits,
): Promise<T> {
  const begin = `begin; set local lock_timeout = ${lock}; set local idle_in_transaction_session_timeout = ${idle}`;
  try {
    // Within: what is cancelled after its first statement has begun a transaction.
    await connection.query(begin, { isScript: true });
    const result = await work((text, options) => connection.query(text, options));
    const { command } = await connection.query("commit");
    // After a failed statement PostgreSQL rolls back on commit, without an error.
    if (command === "ROLLBACK") throw new Error("a statement of the transaction failed unnoticed");
    return result;
  } catch (error) {
    await rollBack(connection);
    throw error;
  }
}

/** Leaves no transaction open, as the connection is used by others next. */
async function rollBack(connection: Connection): Promise<void> {
  await connection.query("rollback").catch(() => connection.destroy(connectionLost("a rollback failed")));
}
