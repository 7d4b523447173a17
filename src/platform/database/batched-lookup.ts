/**
 * Look-ups of many requests gathered into few queries. A key is only ever answered by a query that starts
 * after the key was asked for: what a caller gets is never older than its question. That is what lets
 * strict revocation cost a share of a query instead of a query. What is written for many is gathered alike.
 * While a query runs, those who come meanwhile wait for its end to share the next one; where they fill one, or
 * where it takes long, they do not.
 */
import { unavailable } from "../base/errors.ts";

interface BatchOptions<K, V> {
  /** One query for all keys; a key without an entry in the answer gets undefined. */
  readonly load: (keys: readonly K[]) => Promise<ReadonlyMap<K, V>>;
  /** Keys in one query. */
  readonly maxKeys?: number;
  /** Queries at once, at most. */
  readonly maxQueries?: number;
  /** Keys waiting; more than that means that the database does not keep up, and they are refused. */
  readonly maxWaiting?: number;
}

/** Keys that are going to share a query. */
interface Batch<K, V> {
  readonly keys: Set<K>;
  readonly answer: PromiseWithResolvers<ReadonlyMap<K, V>>;
}

/**
 * Milliseconds after which keys wait no longer for the query in hand. One query for all who came meanwhile costs
 * less than two for half of them each; a database too far away to answer sooner costs each of them no more than this.
 */
const patienceMs = 2;

/** Answers a look-up for one key. */
export type BatchedLookup<K, V> = (key: K) => Promise<V | undefined>;

/** Makes a look-up that gathers. Keys are compared as a Set compares them. */
export function batched<K, V>(options: BatchOptions<K, V>): BatchedLookup<K, V> {
  const { load, maxKeys = 256, maxQueries = 2, maxWaiting = 20_000 } = options;
  /** In their order; all but the last are full. */
  const waiting: Batch<K, V>[] = [];
  let running = 0;
  let isScheduled = false;
  let patience: NodeJS.Timeout | undefined;

  /** Where the key is asked for; undefined if there is no room. */
  function batchOf(key: K): Batch<K, V> | undefined {
    for (const batch of waiting) if (batch.keys.has(key)) return batch;
    const last = waiting.at(-1);
    const keysWaiting = last ? (waiting.length - 1) * maxKeys + last.keys.size : 0;
    if (keysWaiting >= maxWaiting) return undefined;
    if (last && last.keys.size < maxKeys) return last;
    const batch = { keys: new Set<K>(), answer: Promise.withResolvers<ReadonlyMap<K, V>>() };
    waiting.push(batch);
    return batch;
  }

  function schedule(): void {
    const [next] = waiting;
    if (isScheduled || !next || running >= maxQueries) return;
    if (running > 0 && next.keys.size < maxKeys) {
      patience ??= setTimeout(startNext, patienceMs);
      return;
    }
    isScheduled = true;
    // After the I/O of this turn: requests that arrived together share a query.
    setImmediate(() => {
      isScheduled = false;
      startNext();
    });
  }

  function startNext(): void {
    clearTimeout(patience);
    patience = undefined;
    const next = running < maxQueries ? waiting.shift() : undefined;
    if (!next) return;
    void run(next);
    schedule();
  }

  async function run({ keys, answer }: Batch<K, V>): Promise<void> {
    running += 1;
    try {
      answer.resolve(await load([...keys]));
    } catch (error) {
      answer.reject(error);
    } finally {
      running -= 1;
      schedule();
    }
  }

  return (key) => {
    const batch = batchOf(key);
    if (!batch) return Promise.reject(unavailable("The database", new Error("look-ups pile up")));
    batch.keys.add(key);
    schedule();
    return batch.answer.promise.then((found) => found.get(key));
  };
}
