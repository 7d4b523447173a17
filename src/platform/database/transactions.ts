/**
 * Transactions over postgres.js, each on a connection of its own. The driver's `begin` (3.4.9) sends a
 * rollback to a closed connection, from a timer, where the error cannot be caught: one connection that
 * PostgreSQL closes inside a transaction would end the process. Here nothing is sent to a connection once it
 * has closed, and nothing waits for it; PostgreSQL has rolled the transaction back by itself.
 */
import type postgres from "postgres";
import { isDatabaseUnavailable } from "../base/database-errors.ts";
import { type OpenClient, retire } from "./renewing-pool.ts";

/**
 * Milliseconds that a transaction waits for a connection. Shorter than any caller waits for its response, so that
 * no transaction begins, and writes, for a caller that has already received an error.
 */
const waitMs = 4_000;

interface Waiter {
  resolve(connection: Connection): void;
  readonly timer: NodeJS.Timeout;
}

/** A client with one connection, for one transaction at a time. */
class Connection {
  readonly client: postgres.Sql;
  readonly #unsafe: postgres.Sql["unsafe"];
  readonly #loss = Promise.withResolvers<never>();
  /** The connection has closed, or its state is unknown: no further transaction may use it. */
  isLost = false;

  constructor(open: OpenClient) {
    // If nothing waits at the moment, the loss is not an unhandled rejection.
    this.#loss.promise.catch(() => undefined);
    this.client = open(() => {
      this.isLost = true;
      this.#loss.reject(connectionLost());
    });
    this.#unsafe = this.client.unsafe;
    this.client.unsafe = (query, parameters, options) => {
      // The driver would connect again, and run the statement outside of the transaction.
      if (this.isLost) throw connectionLost();
      return this.#unsafe(query, parameters, { ...options, prepare: true });
    };
  }

  async run<T>(work: (client: postgres.Sql) => Promise<T>): Promise<T> {
    await this.#orLost(this.client.unsafe("begin"));
    try {
      const result = await this.#orLost(work(this.client));
      const { command } = await this.#orLost(this.client.unsafe("commit"));
      // After a failed statement PostgreSQL rolls back on commit, without an error.
      if (command === "ROLLBACK") throw new Error("a statement of the transaction failed unnoticed");
      return result;
    } catch (error) {
      // A connection whose state is unknown is closed, which rolls back as well.
      if (isDatabaseUnavailable(error)) this.isLost = true;
      else await this.#orLost(this.client.unsafe("rollback")).catch(() => undefined);
      throw error;
    }
  }

  #orLost<T>(work: PromiseLike<T>): Promise<T> {
    return Promise.race([work, this.#loss.promise]);
  }
}

export class Transactions {
  readonly #open: OpenClient;
  readonly #max: number;
  readonly #connections = new Set<Connection>();
  readonly #free: Connection[] = [];
  #waiting: Waiter[] = [];

  /**
   * @param open opens a client with one connection
   * @param max concurrent transactions; further ones wait
   */
  constructor(open: OpenClient, max: number) {
    this.#open = open;
    this.#max = max;
  }

  /** Runs the work in a transaction: commits its result, rolls back if it throws. */
  async begin<T>(work: (client: postgres.Sql) => Promise<T>): Promise<T> {
    const connection = await this.#take();
    try {
      return await connection.run(work);
    } catch (error) {
      if (isDatabaseUnavailable(error)) connection.isLost = true;
      throw error;
    } finally {
      this.#release(connection);
    }
  }

  async close(seconds: number): Promise<void> {
    await Promise.all([...this.#connections].map(({ client }) => client.end({ timeout: seconds })));
  }

  async #take(): Promise<Connection> {
    for (let free = this.#free.pop(); free; free = this.#free.pop()) {
      if (!free.isLost) return free;
      this.#discard(free);
    }
    if (this.#connections.size < this.#max) return this.#connect();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting = this.#waiting.filter((one) => one !== waiter);
        reject(noConnection());
      }, waitMs);
      const waiter = { resolve, timer };
      this.#waiting.push(waiter);
    });
  }

  #release(connection: Connection): void {
    if (connection.isLost) this.#discard(connection);
    const next = this.#waiting.shift();
    if (next) {
      clearTimeout(next.timer);
      next.resolve(connection.isLost ? this.#connect() : connection);
    } else if (!connection.isLost) this.#free.push(connection);
  }

  #connect(): Connection {
    const connection = new Connection(this.#open);
    this.#connections.add(connection);
    return connection;
  }

  #discard(connection: Connection): void {
    this.#connections.delete(connection);
    retire(connection.client);
  }
}

/** An error with the driver's code, by which callers recognise that the database is unavailable. */
function connectionLost(): Error {
  return Object.assign(new Error("the connection ended inside a transaction"), { code: "CONNECTION_CLOSED" });
}

function noConnection(): Error {
  return Object.assign(new Error("all connections for transactions are taken"), { code: "CONNECT_TIMEOUT" });
}
