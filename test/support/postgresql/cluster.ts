/** A PostgreSQL cluster of a run's own: on a free port, in a temporary folder, gone when the run is. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export interface Cluster {
  /** A superuser's URL. */
  readonly url: string;
  /**
   * Ends the server; its data stays. It may also have ended by itself, where {@link ClusterPlace.mayEnd} says so.
   * @param mode `fast` closes what is open; `immediate` does not, as in a crash; `kill` is kill -9 of all its processes
   */
  halt(mode: "fast" | "immediate" | "kill"): Promise<void>;
  /** Starts the server again after {@link halt}. @throws if it does not start */
  resume(): Promise<void>;
  /** Resolves when the server has ended and its folder is removed. */
  stop(): Promise<void>;
}

/** Where a cluster is, and what may come over it. */
export interface ClusterPlace {
  /** The folder that its own is made in. */
  readonly parent?: string;
  /** The server may end by itself, as where its disk is full; otherwise that is a failure. */
  readonly mayEnd?: boolean;
  /** Where it listens; any free port where it is not given. */
  readonly port?: number;
  /** The processor that all its processes run on, by taskset; any where it is not given. */
  readonly core?: number;
  /** What the server has in its environment beside that of the tests. */
  readonly env?: Readonly<Record<string, string>>;
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
  { core, ...place }: ClusterPlace = {},
): Promise<Cluster> {
  const program = fileURLToPath(new URL("keeper.ts", import.meta.url));
  // In a process group of its own, so that Ctrl+C reaches it by the closed pipe only, after the tests have ended.
  const command = [process.execPath, program, JSON.stringify({ binaries, settings, primary, ...place })];
  const [file = "", ...args] = core === undefined ? command : ["taskset", "-c", String(core), ...command];
  const keeper = spawn(file, args, { detached: true, stdio: ["pipe", "pipe", "inherit"] });
  const gone = once(keeper, "exit");
  const lines = createInterface({ input: keeper.stdout });
  const line = () =>
    Promise.race([once(lines, "line").then(([text]) => String(text)), gone.then(() => undefined)]);
  const url = await line();
  if (url === undefined) throw new Error(`PostgreSQL of ${binaries} did not start.`);
  /** The keeper answers each command with a line. */
  async function tell(command: string): Promise<void> {
    const answer = line();
    keeper.stdin.write(`${command}\n`);
    if ((await answer) !== "done") throw new Error(`PostgreSQL of ${binaries}: ${command} failed.`);
  }
  return {
    url,
    halt: (mode) => tell(mode),
    resume: () => tell("start"),
    async stop() {
      keeper.stdin.end();
      await gone;
    },
  };
}
