import { afterAll } from "vitest";

/**
 * The stack of what the suite's `beforeAll` has started. The suite closes it at its end, the last thing first.
 * A `beforeAll` that fails half way is then the only failure: what it had started is closed, and nothing else
 * is touched. Call it where the suite is described; call `defer` right after each start.
 */
export function suiteCleanup(): AsyncDisposableStack {
  const cleanup = new AsyncDisposableStack();
  afterAll(() => cleanup.disposeAsync());
  return cleanup;
}
