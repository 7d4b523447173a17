/** Processes of a benchmark: servers on one core, load on the other, so that neither takes from the other. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { setTimeout } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const canPin = availableParallelism() > 1 && pinningWorks();

function pinningWorks(): boolean {
  try {
    execFileSync("taskset", ["-c", "0", "true"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Whether servers and load have a core each. */
export const pinned = canPin;

/** Where PostgreSQL runs when one process of the product is measured: beside the load. */
export const databaseCore = canPin ? 1 : undefined;

/** Where a process runs; "any" leaves it to the system. */
export type Core = 0 | 1 | "any";

/** Kills a process when this one ends, also by an uncaught error or by a signal that nothing else handles. */
function endWithUs(child: ChildProcess): void {
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  child.once("exit", () => process.off("exit", kill));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    if (process.listenerCount(signal) === 0) process.once(signal, () => process.exit(1));
}

/** A program of this folder that a benchmark starts. */
export type Program =
  | "cache-looks.ts"
  | "http2-load.ts"
  | "load-closed.ts"
  | "load-flood.ts"
  | "load-open.ts"
  | "load-refresh.ts"
  | "rsa-ceiling.ts";

function start(core: Core, file: string, args: readonly string[], env: Record<string, string>): ChildProcess {
  const script = fileURLToPath(new URL(file, import.meta.url));
  const command = [process.execPath, script, ...args];
  const [program = "", ...rest] =
    canPin && core !== "any" ? ["taskset", "-c", String(core), ...command] : command;
  const child = spawn(program, rest, {
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  endWithUs(child);
  return child;
}

/** A server under load. */
export interface BenchServer {
  /** Highest resident memory so far, in MiB; undefined where the system does not tell. */
  peakMemory(): number | undefined;
  /** Seconds of processor time that it has used so far; undefined where the system does not tell. */
  processorSeconds(): number | undefined;
  stop(): Promise<void>;
}

/** Starts a server, on the first core unless told otherwise. @param isUp tells when it answers */
export async function startBenchServer(
  file: string,
  args: readonly string[],
  env: Record<string, string>,
  isUp: () => Promise<boolean>,
  core: Core = 0,
): Promise<BenchServer> {
  const child = start(core, file, args, env);
  child.stdout?.resume();
  const gone = once(child, "exit");
  const deadline = Date.now() + 240_000;
  while (!(await isUp().catch(() => false))) {
    if (child.exitCode !== null || Date.now() > deadline) throw new Error(`${file} did not come up`);
    await setTimeout(50);
  }
  return {
    peakMemory() {
      try {
        const kilobytes = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${child.pid}/status`, "utf8"))?.[1];
        return kilobytes === undefined ? undefined : Number(kilobytes) / 1024;
      } catch {
        return undefined;
      }
    },
    processorSeconds() {
      try {
        // User and system time, in ticks, of which Linux has a hundred in a second (proc_pid_stat(5)).
        const fields = readFileSync(`/proc/${child.pid}/stat`, "utf8").split(") ")[1]?.split(" ");
        return (Number(fields?.[11]) + Number(fields?.[12])) / 100;
      } catch {
        return undefined;
      }
    },
    async stop() {
      child.kill("SIGTERM");
      await gone;
    },
  };
}

/** What a load generator, or a ceiling without a server, printed. */
export interface Measured {
  readonly perSecond: number;
  readonly p50?: number;
  readonly p99?: number;
  /** A wrong answer, if there was one. */
  readonly failure?: string;
}

/** Runs a program to its end. @returns what it printed. Load belongs on the second core */
export async function run(core: Core, file: Program, args: readonly string[]): Promise<string> {
  const child = start(core, file, args, {});
  let output = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${file} exited with ${code}`);
  return output;
}

/** Runs a program that measures. Load belongs on the second core, a ceiling on the servers' first. */
export async function measure(core: Core, file: Program, args: readonly string[]): Promise<Measured> {
  const measured: Measured = JSON.parse(await run(core, file, args));
  if (measured.failure !== undefined) throw new Error(`${file}: a wrong answer: ${measured.failure}`);
  return measured;
}
