/** Drizzle over connections of our own, in place of those that its driver would make, and transactions on them. */
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { inStatementSpan, inTransactionSpan } from "../sql/statement-spans.ts";
import {
  type Connection,
  connectionLost,
  type Parameters,
  type QueryOptions,
  type Result,
} from "./connection.ts";
import type { Lane } from "./lane.ts";

/** The pending rows of a statement, which runs when this is awaited, or the rows are asked for as lists. */
class PendingRows implements PromiseLike<Result> {
  readonly #run: (asLists: boolean) => Promise<Result>;

  constructor(run: (asLists: boolean) => Promise<Result>) {
    this.#run = run;
  }

  values(): Promise<Result> {
    return this.#run(true);
  }

  // biome-ignore lint/suspicious/noThenProperty: Drizzle awaits it.
  then<A = Result, B = never>(
    fulfilled?: ((result: Result) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#run(false).then(fulfilled, rejected);
  }
}

function clientOver(query: Query) {
  return {
    unsafe: (text: string, parameters: Parameters = []) =>
      new PendingRows((asLists) => inStatementSpan(text, () => query(text, { parameters, asLists }))),
  };
}

/** A Drizzle database that passes its statements and transactions on. The driver's client beneath it never connects. */
export function drizzleOver(
  query: Query,
  transaction?: <T>(work: (query: Query) => Promise<T>) => Promise<T>,
): PostgresJsDatabase {
  const client = Object.assign(postgres({ max: 1, fetch_types: false }), clientOver(query));
  Object.defineProperty(client, "begin", {
    value: <T>(work: (client: object) => Promise<T>) => {
      if (!transaction) throw new Error("a transaction needs the connections for writing");
      return inTransactionSpan(() => transaction((inside) => work(clientOver(inside))));
    },
  });
  return drizzle({ client });
}

/** One that runs statements, and no transactions, on the connections of a lane. */
export function drizzleOverLane(lane: Lane): PostgresJsDatabase {
  return drizzleOver((text, options) => lane.use((connection) => connection.query(text, options)));
}

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
