/** A PostgreSQL cluster of a run's own: on a free port, in a temporary folder, gone when the run is. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface Cluster {
  /** A superuser's URL. */
  readonly url: string;
  /** Resolves when the server has ended and its folder is removed. */
  stop(): Promise<void>;
}

/**
 * Starts a cluster with these programs.
 *
 * @param binaries the directory of `initdb` and `postgres`
 * @param settings of the server, as `max_connections=300`; its defaults otherwise
 * @param primary a superuser's URL of the server that the cluster is to be a hot standby of
 * @throws if it does not start; why is on standard error
 */
export async function startCluster(
  binaries: string,
  settings: readonly string[] = [],
  primary = "",
): Promise<Cluster> {
  const program = fileURLToPath(new URL("keeper.ts", import.meta.url));
  // In a process group of its own, so that Ctrl+C reaches it by the closed pipe only, after the tests have ended.
  const keeper = spawn(process.execPath, [program, binaries, primary, ...settings], {
    detached: true,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const gone = once(keeper, "exit");
  const lines = createInterface({ input: keeper.stdout });
  const url = await Promise.race([
    once(lines, "line").then(([line]) => String(line)),
    gone.then(() => undefined),
  ]);
  if (url === undefined) throw new Error(`PostgreSQL of ${binaries} did not start.`);
  return {
    url,
    async stop() {
      keeper.stdin.end();
      await gone;
    },
  };
}
