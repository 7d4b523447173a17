/**
 * The connections of a pool that do one kind of work. Who finds none free waits for one, first come, first served, for
 * a limited time and in a limited number; meanwhile the lane grows. Unused connections are checked.
 */
import { setTimeout } from "node:timers/promises";
import { sqlState } from "../../base/database-errors.ts";
import { Deadlines } from "../../base/deadlines.ts";
import type { DatabaseObserver } from "../../base/observers.ts";
import type { Outage } from "../../base/outage.ts";
import type { Address } from "../settings.ts";
import { type Connection, type ConnectionOptions, connectionLost } from "./connection.ts";
import type { Connector } from "./connector.ts";

export interface LaneOptions {
  readonly name: string;
  readonly connection: (address: Address) => ConnectionOptions;
  readonly size: number;
  /** How many pieces of work share a connection: 1, or more for short statements that may follow each other. */
  readonly sharing: number;
  /** Transactions at a time, at most. As they may wait for locks, some connections are left to other work. */
  readonly maxTransactions: number;
  /** Milliseconds that work waits for a connection, at most. */
  readonly waitMs: number;
  /** Milliseconds after which a connection is replaced; 45 minutes unless given. */
  readonly lifetimeMs?: number;
  readonly connector: Connector;
  readonly observer: DatabaseObserver;
  /** Takes note of errors; absent where somebody else notices them. */
  readonly outage?: Outage | undefined;
}

/** Work that may wait for a connection; further work is refused at once. */
const maxWaiting = 1_000;
/** Milliseconds between two looks at the connections. */
const sweepMs = 500;
/** Milliseconds without a response after which an unused connection is checked. */
const quietMs = 1_000;
/** Milliseconds within which a lane that is used or checked has had a response. */
const responsiveMs = 2_500;
/** Milliseconds after which an unused connection is closed, except for the last one. */
const idleMs = 60_000;
/** Milliseconds after which a connection is replaced, so that load follows a changed address. */
const defaultLifetimeMs = 45 * 60_000;
/** Milliseconds that work in progress has to end when the lane is closed. */
const closeMs = 5_000;

interface Waiter {
  readonly isTransaction: boolean;
  readonly deadline: number;
  resolve(connection: Connection): void;
  reject(error: unknown): void;
  expire(): void;
}

export class Lane {
  readonly #options: LaneOptions;
  readonly #connections = new Set<Connection>();
  readonly #checking = new Set<Connection>();
  /** A connection whose lifetime is over: it gets no more work, and is terminated when its work is done. */
  #retiring: Connection | undefined;
  #transactions = 0;
  #waiting: Waiter[] = [];
  readonly #waitLimits = new Deadlines<Waiter>();
  #connecting: Promise<void> | undefined;
  #sweeper: NodeJS.Timeout | undefined;
  #isClosed = false;

  /** Nothing is connected before it is needed. */
  constructor(options: LaneOptions) {
    this.#options = options;
    options.observer.lane(options.name, () => ({
      open: this.#connections.size,
      inUse: [...this.#connections].filter(({ uses }) => uses > 0).length,
      waiting: this.#waiting.length,
    }));
  }

  /**
   * Does work on a connection, for which it waits `waitMs` at most. @param isTransaction it may wait for locks
   * @throws an error that means that the database is unavailable, if no connection becomes free within the limit
   */
  use<T>(
    work: (connection: Connection) => Promise<T>,
    isTransaction = false,
    waitMs = this.#options.waitMs,
  ): Promise<T> {
    const using = () => this.#use(work, isTransaction, waitMs);
    return this.#options.outage?.noting(using) ?? using();
  }

  async #use<T>(
    work: (connection: Connection) => Promise<T>,
    isTransaction: boolean,
    waitMs: number,
  ): Promise<T> {
    const askedAt = performance.now();
    let connection = this.#waiting.length === 0 ? this.#take(isTransaction) : undefined;
    try {
      connection ??= await this.#wait(isTransaction, waitMs);
    } finally {
      // A wait that was in vain is observed, too: those are the longest.
      this.#options.observer.waited(this.#options.name, (performance.now() - askedAt) / 1000);
    }
    try {
      return await work(connection);
    } finally {
      connection.uses -= 1;
      connection.usedAt = performance.now();
      if (isTransaction) this.#transactions -= 1;
      if (connection === this.#retiring && connection.uses === 0) this.#retire(connection);
      else this.#handOver();
    }
  }

  /** Resolves if the lane has a connection, or as soon as it has; rejects if one cannot be made. */
  async open(): Promise<void> {
    if (this.#connections.size === 0) await this.#grow();
  }

  /** Whether a response has come lately. Asks nothing: unused connections are checked anyway. */
  get isResponsive(): boolean {
    const since = performance.now() - responsiveMs;
    return [...this.#connections].some(({ respondedAt }) => respondedAt > since);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#sweeper);
    this.#rejectAll(connectionLost("the database is being closed"));
    const until = performance.now() + closeMs;
    await this.#connecting?.catch(() => undefined);
    while ([...this.#connections].some(({ uses }) => uses > 0) && performance.now() < until)
      await setTimeout(10);
    await Promise.all([...this.#connections].map((connection) => connection.terminate()));
  }

  /** The connection with the least work, if the work may have it; and another one for later if all have work. */
  #take(isTransaction: boolean): Connection | undefined {
    if (this.#isClosed || (isTransaction && this.#transactions >= this.#options.maxTransactions))
      return undefined;
    const free = this.#leastUsed();
    if (free === undefined || free.uses > 0) this.#growLater();
    if (!free) return undefined;
    free.uses += 1;
    if (isTransaction) this.#transactions += 1;
    return free;
  }

  #leastUsed(): Connection | undefined {
    let least: Connection | undefined;
    for (const connection of this.#connections) {
      if (connection === this.#retiring) continue;
      if (connection.uses < (least?.uses ?? this.#options.sharing)) least = connection;
      if (least?.uses === 0) break;
    }
    return least;
  }

  #wait(isTransaction: boolean, waitMs: number): Promise<Connection> {
    if (this.#isClosed) return Promise.reject(connectionLost("the database is closed"));
    if (this.#waiting.length >= maxWaiting)
      return Promise.reject(noConnection(this.#options.connector.failure));
    return new Promise((resolve, reject) => {
      const settle = <T>(end: (value: T) => void) => {
        return (value: T) => {
          this.#waitLimits.release(slot, waiter);
          end(value);
        };
      };
      const waiter: Waiter = {
        isTransaction,
        deadline: performance.now() + waitMs,
        resolve: settle(resolve),
        reject: settle(reject),
        expire: () => {
          this.#waiting = this.#waiting.filter((one) => one !== waiter);
          reject(noConnection(this.#options.connector.failure));
        },
      };
      const slot = this.#waitLimits.take(waiter);
      this.#waiting.push(waiter);
      this.#handOver();
    });
  }

  /** Gives connections that are free to those who wait, in their order. */
  #handOver(): void {
    this.#waiting = this.#waiting.filter((waiter) => {
      const free = this.#take(waiter.isTransaction);
      if (free) waiter.resolve(free);
      return !free;
    });
    // Once it has been used, a lane keeps a connection, so that it works again as soon as the database does.
    if (this.#connections.size === 0) this.#growLater();
  }

  #growLater(): void {
    // #connect rejects the waiting work if this fails.
    this.#grow()?.catch(() => undefined);
  }

  /** Connects once more, unless the lane has its size or already connects. Rejects if that fails. */
  #grow(): Promise<void> | undefined {
    if (this.#isClosed || this.#connections.size >= this.#options.size) return this.#connecting;
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
      this.#handOver();
    });
    return this.#connecting;
  }

  async #connect(): Promise<void> {
    const { connector, connection: options } = this.#options;
    try {
      const connection = await connector.connect(options, (closed) => {
        if (this.#connections.delete(closed)) this.#handOver();
      });
      if (this.#isClosed) await connection.terminate();
      else if (!connection.isClosed) this.#connections.add(connection);
      this.#sweeper ??= setInterval(() => this.#sweep(), sweepMs).unref();
    } catch (error) {
      if (this.#connections.size === 0 && !isWorthWaiting(error)) this.#rejectAll(error);
      throw error;
    }
  }

  #rejectAll(error: unknown): void {
    for (const waiter of this.#waiting.splice(0)) waiter.reject(error);
  }

  #sweep(): void {
    const now = performance.now();
    this.#retireOldest(now);
    for (const connection of this.#connections) {
      if (connection.uses > 0) continue;
      const isSpare = this.#connections.size > 1 && now - connection.usedAt > idleMs;
      if (isSpare) this.#retire(connection);
      else if (now - connection.respondedAt > quietMs) void this.#check(connection);
    }
  }

  /** Retires connections one at a time, so that those of the same age do not leave the lane without any. */
  #retireOldest(now: number): void {
    if (this.#retiring && this.#connections.has(this.#retiring)) return;
    const { lifetimeMs = defaultLifetimeMs } = this.#options;
    this.#retiring = [...this.#connections].find(({ openedAt }) => now - openedAt > lifetimeMs);
    if (this.#retiring?.uses === 0) this.#retire(this.#retiring);
  }

  #retire(connection: Connection): void {
    this.#connections.delete(connection);
    void connection.terminate().catch(() => undefined);
    this.#handOver();
  }

  /** Checks a connection. One that fails the check ends by that, which removes it here. */
  async #check(connection: Connection): Promise<void> {
    if (this.#checking.has(connection)) return;
    this.#checking.add(connection);
    await connection.check().catch(() => undefined);
    this.#checking.delete(connection);
  }
}

/** 53300: there are too many connections; 57P03: the server is starting. Both may be over in a moment. */
function isWorthWaiting(error: unknown): boolean {
  return ["53300", "57P03"].includes(sqlState(error) ?? "");
}

/** Means that a statement was not begun, as others wait for the same lock. */
export function noTurn(): Error {
  return Object.assign(new Error("others wait for the same lock"), { code: "CONNECTION_BUSY_LOCK" });
}

/** Means that the database is unavailable. @param cause why no connection was made; undefined if all are in use */
export function noConnection(cause?: unknown): Error {
  const error = new Error("no connection has become free in time", { cause });
  return Object.assign(error, { code: cause === undefined ? "CONNECTION_BUSY" : "CONNECT_TIMEOUT" });
}
