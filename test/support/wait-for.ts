import { vi } from "vitest";

/**
 * Tries again until the check passes, and returns what it returns. The wait ends as soon as it does: the limit
 * of a minute is there for what never comes, and no busy machine reaches it.
 * @throws what the check threw last
 */
export function waitFor<T>(check: () => T | Promise<T>, intervalMs = 50): Promise<T> {
  return vi.waitFor(check, { timeout: 60_000, interval: intervalMs });
}
