/**
 * Transactions over postgres.js, each on a connection of its own. The driver's own `begin` (3.4.9) sends a
 * rollback to a connection that has gone, from a timer, where nobody can catch what that throws: one
 * connection that PostgreSQL ends inside a transaction would end the process. Here nothing is sent to a
 * connection once it is known to be gone, and nobody waits for it; PostgreSQL has rolled back by itself.
 */
import type postgres from "postgres";
import { isDatabaseUnavailable } from "../base/database-errors.ts";
import { type OpenClient, retire } from "./renewing-pool.ts";

/**
 * Milliseconds that a transaction waits for a connection. Shorter than any caller waits for its answer, so that
 * nothing is begun, and written, for somebody who was told that it cannot be done.
 */
const waitMs = 4_000;

interface Waiter {
  resolve(lane: Lane): void;
  readonly timer: NodeJS.Timeout;
}

/** A client with one connection, for one transaction at a time. */
class Lane {
  readonly client: postgres.Sql;
  readonly #unsafe: postgres.Sql["unsafe"];
  readonly #loss = Promise.withResolvers<never>();
  /** The connection is gone, or cannot be trusted any more: no further transaction. */
  isLost = false;

  constructor(open: OpenClient) {
    // Where nobody waits at the moment, nobody needs to hear of it.
    this.#loss.promise.catch(() => undefined);
    this.client = open(() => {
      this.isLost = true;
      this.#loss.reject(connectionLost());
    });
    this.#unsafe = this.client.unsafe;
    this.client.unsafe = (query, parameters, options) => {
      // The driver would connect again, and run this outside of the transaction.
      if (this.isLost) throw connectionLost();
      return this.#unsafe(query, parameters, { ...options, prepare: true });
    };
  }

  async run<T>(work: (client: postgres.Sql) => Promise<T>): Promise<T> {
    await this.#orLost(this.client.unsafe("begin"));
    try {
      const result = await this.#orLost(work(this.client));
      const { command } = await this.#orLost(this.client.unsafe("commit"));
      // PostgreSQL answers a commit after a statement that failed with a rollback, and no error.
      if (command === "ROLLBACK") throw new Error("a statement of the transaction failed unnoticed");
      return result;
    } catch (error) {
      // A connection in doubt is given up, which rolls back as well.
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
  readonly #lanes = new Set<Lane>();
  readonly #free: Lane[] = [];
  #waiting: Waiter[] = [];

  /**
   * @param open opens a client with one connection
   * @param max transactions at once; further ones wait
   */
  constructor(open: OpenClient, max: number) {
    this.#open = open;
    this.#max = max;
  }

  /** Runs the work in a transaction: commits its result, rolls back if it throws. */
  async begin<T>(work: (client: postgres.Sql) => Promise<T>): Promise<T> {
    const lane = await this.#take();
    try {
      return await lane.run(work);
    } catch (error) {
      if (isDatabaseUnavailable(error)) lane.isLost = true;
      throw error;
    } finally {
      this.#giveBack(lane);
    }
  }

  async close(seconds: number): Promise<void> {
    await Promise.all([...this.#lanes].map(({ client }) => client.end({ timeout: seconds })));
  }

  async #take(): Promise<Lane> {
    for (let free = this.#free.pop(); free; free = this.#free.pop()) {
      if (!free.isLost) return free;
      this.#discard(free);
    }
    if (this.#lanes.size < this.#max) return this.#newLane();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#waiting = this.#waiting.filter((one) => one !== waiter);
        reject(noConnection());
      }, waitMs);
      const waiter = { resolve, timer };
      this.#waiting.push(waiter);
    });
  }

  #giveBack(lane: Lane): void {
    if (lane.isLost) this.#discard(lane);
    const next = this.#waiting.shift();
    if (next) {
      clearTimeout(next.timer);
      next.resolve(lane.isLost ? this.#newLane() : lane);
    } else if (!lane.isLost) this.#free.push(lane);
  }

  #newLane(): Lane {
    const lane = new Lane(this.#open);
    this.#lanes.add(lane);
    return lane;
  }

  #discard(lane: Lane): void {
    this.#lanes.delete(lane);
    retire(lane.client);
  }
}

/** With the driver's own code, by which it is known that the database is away. */
function connectionLost(): Error {
  return Object.assign(new Error("the connection ended inside a transaction"), { code: "CONNECTION_CLOSED" });
}

function noConnection(): Error {
  return Object.assign(new Error("all connections for transactions are taken"), { code: "CONNECT_TIMEOUT" });
}
