/**
 * Begins with few requests at once. If a thousand that arrive together were all begun with, the objects of each would
 * live until most of them have a response, which is longer than V8's young generation lasts: each would cost half as
 * much again. A request that has not been begun with is small.
 */

/** Requests that are begun with in one turn of the event loop. */
const perTurn = 64;

let begun = 0;
/** Those that are begun with in later turns, in order of arrival. */
const waiting: (() => void)[] = [];

/**
 * Calls `begin` now or in one of the next turns of the event loop. Turns are short while the process has little to do,
 * so this is no limit on how many requests wait for a database.
 */
export function beginStaggered(begin: () => void): void {
  if (begun === 0) setImmediate(endTurn);
  if (begun < perTurn && waiting.length === 0) {
    begun += 1;
    begin();
  } else waiting.push(begin);
}

function endTurn(): void {
  const some = waiting.splice(0, perTurn);
  begun = some.length;
  if (begun > 0) setImmediate(endTurn);
  for (const begin of some) begin();
}
