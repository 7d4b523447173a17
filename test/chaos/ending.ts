/** How the harness ends: in order where it can, and never without the programs that it has started. */
import type { ChildProcess } from "node:child_process";
import { subscribe } from "node:diagnostics_channel";

/**
 * Kills what this process has started when it ends, by an uncaught error or however else it calls an end; only kill -9
 * prevents it. Who has a pipe from us ends by itself when it closes, as PostgreSQL's keeper does.
 */
export function endChildrenAtExit(): void {
  const children = new Set<ChildProcess>();
  subscribe("child_process", (message) => {
    const { process: child } = message as { process: ChildProcess };
    children.add(child);
    child.once("exit", () => children.delete(child));
  });
  process.once("exit", () => {
    for (const child of children) if (child.stdin === null) child.kill("SIGKILL");
  });
}

/** Rejects at the first signal to end, so that what is open can be closed. The second one ends the process at once. */
export function interruption(): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>();
  let isInterrupted = false;
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (isInterrupted) process.exit(1);
      isInterrupted = true;
      reject(new Error(`interrupted by ${signal}`));
    });
  }
  // Whoever races it sees it; until then it is nobody's failure.
  promise.catch(() => undefined);
  return promise;
}
