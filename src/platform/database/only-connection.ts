/** What each statement and transaction on the only connection of an embedded database goes through. */
import { AsyncLocalStorage } from "node:async_hooks";
import type { PGlite, Transaction } from "@electric-sql/pglite";
import { inStatementSpan, inTransactionSpan } from "./sql/statement-spans.ts";

/** The transaction that the running code belongs to. */
const current = new AsyncLocalStorage<{ isOpen: boolean }>();

/**
 * Adds spans to the methods that Drizzle calls. Who uses the client within a transaction gets an error, not a deadlock.
 */
export function watched(client: PGlite): PGlite {
  const query = client.query.bind(client);
  const transaction = client.transaction.bind(client);
  client.query = async (text, ...rest) => {
    requireNoTransaction(text);
    return inStatementSpan(text, () => query(text, ...rest));
  };
  client.transaction = async (work) => {
    requireNoTransaction("another transaction");
    const own = { isOpen: true };
    const run = (tx: Transaction) => current.run(own, () => work(tracedIn(tx)));
    return inTransactionSpan(() => transaction(run)).finally(() => {
      own.isOpen = false;
    });
  };
  return client;
}

function requireNoTransaction(what: string): void {
  if (current.getStore()?.isOpen)
    throw new Error(`a transaction has the only connection, so its tx must run this: ${what}`);
}

function tracedIn(tx: Transaction): Transaction {
  const query = tx.query.bind(tx);
  return Object.assign(tx, {
    query: ((text, ...rest) =>
      inStatementSpan(text, () => query(text, ...rest))) satisfies Transaction["query"],
  });
}
