/** A call and those that have the same key, which share one piece of work. */
interface Joined<R> {
  /** Of the work that was done for all of them. */
  readonly result: R;
  /** Which of them this one is, from 0, in the order of arrival. */
  readonly ordinal: number;
}

type Waiting<R> = PromiseWithResolvers<Joined<R>>;

/**
 * Calls with the same key that come while work for it is under way are joined: one further piece of work is done for
 * all of them. So a process never has two statements wait for the lock of one row, however many ask for it.
 * @param work done for so many calls; where it fails, all of them fail
 */
export function joined<T, R>(
  keyOf: (target: T) => string,
  work: (target: T, calls: number) => Promise<R>,
): (target: T) => Promise<Joined<R>> {
  /** Those that wait, by keys for which work is under way. */
  const waiting = new Map<string, Waiting<R>[]>();

  async function run(key: string, target: T, calls: readonly Waiting<R>[]): Promise<void> {
    try {
      const result = await work(target, calls.length);
      for (const [ordinal, call] of calls.entries()) call.resolve({ result, ordinal });
    } catch (error) {
      for (const call of calls) call.reject(error);
    }
    const next = waiting.get(key) ?? [];
    if (next.length === 0) waiting.delete(key);
    else {
      waiting.set(key, []);
      void run(key, target, next);
    }
  }

  return (target) => {
    const key = keyOf(target);
    const call: Waiting<R> = Promise.withResolvers();
    const others = waiting.get(key);
    if (others) others.push(call);
    else {
      waiting.set(key, []);
      void run(key, target, [call]);
    }
    return call.promise;
  };
}
