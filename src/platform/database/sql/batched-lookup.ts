/**
 * Look-ups (or writes) of many requests in few queries. A key's query starts after it was asked for, so no result is
 * older than its request. While one runs, others wait for its end, unless there are enough or it takes long.
 */
import { unavailable } from "../../base/errors.ts";
import { currentSpan, isSampled, type Span } from "../../base/tracing.ts";
import { inSharedSpan } from "./statement-spans.ts";

interface BatchOptions<K, V> {
  /** One query for all keys; a key without an entry in the result gets undefined. */
  readonly load: (keys: readonly K[]) => Promise<ReadonlyMap<K, V>>;
  /** Keys in one query. */
  readonly maxKeys?: number;
  /** Waiting keys that get a query while another one runs; unless given, as many as one query has at most. */
  readonly enoughKeys?: number;
  readonly maxQueries?: number;
  /** Keys that may wait. More mean that the database does not keep up: their look-ups are refused. */
  readonly maxWaiting?: number;
}

/** Keys that will share a query. */
interface Batch<K, V> {
  readonly keys: Set<K>;
  /** The spans of the first 256 requests for these keys, if their traces are recorded. */
  readonly requests: Span[];
  readonly result: PromiseWithResolvers<ReadonlyMap<K, V>>;
}

/** Milliseconds that keys wait for the running query, at most. */
const maxWaitMs = 2;

/** Requests for which a batch makes spans. Any number may ask for the same key. */
const maxTraced = 256;

export type BatchedLookup<K, V> = (key: K) => Promise<V | undefined>;

/** Creates a look-up that gathers keys into batches. Keys are compared as a Set compares them. */
export function batched<K, V>(options: BatchOptions<K, V>): BatchedLookup<K, V> {
  const { load, maxKeys = 256, enoughKeys = maxKeys, maxQueries = 2, maxWaiting = 20_000 } = options;
  /** The batches that wait, in order of arrival; all but the last are full. */
  const waiting: Batch<K, V>[] = [];
  let running = 0;
  let isScheduled = false;
  let waitTimer: NodeJS.Timeout | undefined;

  /** The batch that the key belongs in; undefined if too many keys wait. */
  function batchOf(key: K): Batch<K, V> | undefined {
    for (const batch of waiting) if (batch.keys.has(key)) return batch;
    const last = waiting.at(-1);
    const keysWaiting = last ? (waiting.length - 1) * maxKeys + last.keys.size : 0;
    if (keysWaiting >= maxWaiting) return undefined;
    if (last && last.keys.size < maxKeys) return last;
    const batch = { keys: new Set<K>(), requests: [], result: Promise.withResolvers<ReadonlyMap<K, V>>() };
    waiting.push(batch);
    return batch;
  }

  function schedule(): void {
    const [next] = waiting;
    if (isScheduled || !next || running >= maxQueries) return;
    if (running > 0 && next.keys.size < enoughKeys) {
      waitTimer ??= setTimeout(startNext, maxWaitMs);
      return;
    }
    isScheduled = true;
    // After the I/O of this turn of the event loop, so that requests that arrived together share a query.
    setImmediate(() => {
      isScheduled = false;
      startNext();
    });
  }

  function startNext(): void {
    clearTimeout(waitTimer);
    waitTimer = undefined;
    const next = running < maxQueries ? waiting.shift() : undefined;
    if (!next) return;
    void run(next);
    schedule();
  }

  async function run({ keys, requests, result }: Batch<K, V>): Promise<void> {
    running += 1;
    try {
      result.resolve(await inSharedSpan(requests, keys.size, () => load([...keys])));
    } catch (error) {
      result.reject(error);
    } finally {
      running -= 1;
      schedule();
    }
  }

  return (key) => {
    const batch = batchOf(key);
    if (!batch) return Promise.reject(unavailable("The database", new Error("too many look-ups wait")));
    batch.keys.add(key);
    const request = batch.requests.length < maxTraced ? currentSpan() : undefined;
    if (request && isSampled(request.context)) batch.requests.push(request);
    schedule();
    return batch.result.promise.then((found) => found.get(key));
  };
}
