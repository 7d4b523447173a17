/** When all has recovered from a fault: a rule about what was tried after its end. */
import type { Attempt } from "./ledger.ts";

/** Milliseconds without trouble after which all has recovered. What takes longer than that is trouble itself. */
export const quietMs = 2_000;
/** Milliseconds after which nobody waits for that any more. */
export const longestRecoveryMs = 40_000;

/**
 * What began before the fault's end may still suffer from it, and is not looked at. Of what began later is trouble what
 * was refused, and what hung, whatever came of it in the end. As long as it lasts there is no end of the trouble, nor
 * before something has been answered: who only waits knows nothing.
 * @param since the fault's end
 * @returns milliseconds from the fault's end to the end of the trouble; undefined if it is not known to be over
 */
export function recoveryOf(attempts: readonly Attempt[], since: number, now: number): number | undefined {
  const later = attempts.filter(({ startedAt }) => startedAt >= since);
  if (!later.some(({ endedAt, isRefused }) => endedAt !== undefined && !isRefused)) return undefined;
  const last = later.reduce((latest, attempt) => {
    const endedAt = attempt.endedAt ?? now;
    const isTrouble = attempt.isRefused || endedAt - attempt.startedAt > quietMs;
    return isTrouble ? Math.max(latest, endedAt) : latest;
  }, since);
  const quietUntil = last + quietMs;
  // What began in the quiet and has not ended may be the next trouble.
  const isDecided = later.every(({ startedAt, endedAt }) => endedAt !== undefined || startedAt > quietUntil);
  return now > quietUntil && isDecided ? last - since : undefined;
}
