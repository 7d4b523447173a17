/** When all has recovered from a fault: a rule about what was tried after its end, or was under way then. */
import type { Attempt } from "./ledger.ts";

/** Milliseconds without trouble after which all has recovered. What takes longer than that is trouble itself. */
export const quietMs = 2_000;
/** Milliseconds after which nobody waits for that any more. */
export const longestRecoveryMs = 40_000;

/**
 * What ended before the fault did is not looked at, and what was under way then counts as begun at its end: somebody waits
 * for it. Of these is trouble what was refused, and what hung, whatever came of it in the end. As long as it lasts there
 * is no end of the trouble, nor before a request that began since has been answered: who only waits knows nothing, and a
 * process may say that it is ready while nobody gets anything of it.
 * @param since the fault's end
 * @returns milliseconds from the fault's end to the end of the trouble; undefined if it is not known to be over
 */
export function recoveryOf(attempts: readonly Attempt[], since: number, now: number): number | undefined {
  const later = attempts.filter(({ endedAt = now }) => endedAt >= since);
  const isServed = later.some(
    ({ of, startedAt, endedAt, isRefused }) =>
      of === "request" && startedAt >= since && endedAt !== undefined && !isRefused,
  );
  if (!isServed) return undefined;
  const last = later.reduce((latest, attempt) => {
    const { endedAt = now } = attempt;
    return troubleOf(attempt, since, now) ? Math.max(latest, endedAt) : latest;
  }, since);
  const quietUntil = last + quietMs;
  // What began in the quiet and has not ended may be the next trouble.
  const isDecided = later.every(({ startedAt, endedAt }) => endedAt !== undefined || startedAt > quietUntil);
  return now > quietUntil && isDecided ? last - since : undefined;
}

/** In words; undefined if it is none. */
function troubleOf(
  { startedAt, endedAt, isRefused }: Attempt,
  since: number,
  now: number,
): "refused" | "late" | "without a response" | undefined {
  if (isRefused) return "refused";
  if ((endedAt ?? now) - Math.max(startedAt, since) <= quietMs) return undefined;
  return endedAt === undefined ? "without a response" : "late";
}

/** What kept everything from being recovered, as {@link recoveryOf} sees it: how many attempts of each kind. */
export function troublesSince(attempts: readonly Attempt[], since: number, now: number): string[] {
  const kinds = attempts.flatMap((attempt) => {
    const trouble = (attempt.endedAt ?? now) >= since && troubleOf(attempt, since, now);
    return trouble ? [`${attempt.of} ${trouble}`] : [];
  });
  return [...Map.groupBy(kinds, (kind) => kind)].map(([kind, all]) => `${all.length} × ${kind}`);
}
