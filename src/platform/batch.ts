/**
 * Look-ups of many requests gathered into few queries. A key is only ever answered by a query that starts
 * after the key was asked for: what a caller gets is never older than its question. That is what lets
 * strict revocation cost a share of a query instead of a query. What is written for many is gathered alike.
 */
import { unavailable } from "./errors.ts";

interface BatchOptions<K, V> {
  /** One query for all keys; a key without an entry in the answer gets undefined. */
  readonly load: (keys: readonly K[]) => Promise<ReadonlyMap<K, V>>;
  /** Keys in one query. */
  readonly maxKeys?: number;
  /** Queries at once; further keys wait and are gathered meanwhile. */
  readonly maxQueries?: number;
  /** Keys waiting; more than that means that the database does not keep up, and they are refused. */
  readonly maxWaiting?: number;
}

interface Waiter<V> {
  resolve(value: V | undefined): void;
  reject(reason: unknown): void;
}

/** Answers a look-up for one key. */
export type BatchedLookup<K, V> = (key: K) => Promise<V | undefined>;

/** Makes a look-up that gathers. Keys are compared as a Map compares them. */
export function batched<K, V>(options: BatchOptions<K, V>): BatchedLookup<K, V> {
  const { load, maxKeys = 256, maxQueries = 2, maxWaiting = 20_000 } = options;
  let waiting = new Map<K, Waiter<V>[]>();
  let running = 0;
  let scheduled = false;

  function schedule(): void {
    if (scheduled || running >= maxQueries || waiting.size === 0) return;
    scheduled = true;
    // After the I/O of this turn: requests that arrived together share a query.
    setImmediate(() => {
      scheduled = false;
      void run(take());
      schedule();
    });
  }

  function take(): Map<K, Waiter<V>[]> {
    if (waiting.size <= maxKeys) {
      const all = waiting;
      waiting = new Map();
      return all;
    }
    const some = new Map([...waiting].slice(0, maxKeys));
    for (const key of some.keys()) waiting.delete(key);
    return some;
  }

  async function run(batch: Map<K, Waiter<V>[]>): Promise<void> {
    running += 1;
    try {
      const found = await load([...batch.keys()]);
      for (const [key, waiters] of batch) for (const waiter of waiters) waiter.resolve(found.get(key));
    } catch (error) {
      for (const waiters of batch.values()) for (const waiter of waiters) waiter.reject(error);
    } finally {
      running -= 1;
      schedule();
    }
  }

  return (key) =>
    new Promise((resolve, reject) => {
      const waiter = { resolve, reject };
      const others = waiting.get(key);
      if (others) others.push(waiter);
      else if (waiting.size >= maxWaiting) reject(unavailable("The database", new Error("look-ups pile up")));
      else waiting.set(key, [waiter]);
      schedule();
    });
}
