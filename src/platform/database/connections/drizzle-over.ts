/** Drizzle over connections of our own, in place of those that its driver would make. */
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import { inStatementSpan, inTransactionSpan } from "../sql/statement-spans.ts";
import type { Parameters, Result } from "./connection.ts";
import type { Query } from "./transaction.ts";

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
