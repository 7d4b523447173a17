import { vi } from "vitest";

/**
 * Tries again until the check passes, and returns what it returns. The wait ends as soon as it does: the limit
 * of a minute is there for what never comes, and no busy machine reaches it.
 * @throws what the check threw last
 */
export function waitFor<T>(check: () => T | Promise<T>, intervalMs = 50): Promise<T> {
  return vi.waitFor(check, { timeout: 60_000, interval: intervalMs });
}

/**
 * The value once it no longer changes: it stayed the same for half a second.
 * @throws where it has not come to rest within a minute
 */
export async function atRest(look: () => number): Promise<number> {
  let last = look();
  let unchanged = 0;
  return await waitFor(() => {
    const now = look();
    unchanged = now === last ? unchanged + 1 : 0;
    last = now;
    if (unchanged < 10) throw new Error(`Still changing: ${now}`);
    return now;
  });
}
