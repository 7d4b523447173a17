import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { codeOf } from "../../../src/platform/base/error-code.ts";

/**
 * Stops processes of PostgreSQL that serve connections, each while it waits for the next statement. In the middle of
 * one it may hold a lock on memory that all processes of the server share, and the whole server would stand still with
 * it, for all other tests too.
 * @param pids those that have ended are passed over
 * @param patienceMs how long to wait in all until each has been idle
 * @returns lets them go on
 * @throws Error if one was not idle for so long; then all go on
 */
export async function freezeBackends(pids: readonly number[], patienceMs = 30_000): Promise<() => void> {
  const thaw = () => void pids.map((pid) => signal(pid, "SIGCONT"));
  const until = performance.now() + patienceMs;
  try {
    for (const pid of pids) await freeze(pid, until);
  } catch (error) {
    thaw();
    throw error;
  }
  return thaw;
}

async function freeze(pid: number, until: number): Promise<void> {
  for (;;) {
    // It is asked before, as it says that it is idle before it is done with the last statement. And after, as the next
    // statement may have come.
    const before = look(pid);
    if (before === undefined) return;
    if (before.isSleeping && before.isIdle && signal(pid, "SIGSTOP")) {
      const stopped = await lookOnceStopped(pid, until);
      if (stopped === undefined || stopped.isIdle) return;
      signal(pid, "SIGCONT");
    }
    if (performance.now() > until) throw new Error(`The process ${pid} of PostgreSQL was never idle.`);
    await setTimeout(Math.random() * 5);
  }
}

/** @returns whether the process exists */
function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    if (codeOf(error) === "ESRCH") return false;
    throw error;
  }
}

interface Look {
  readonly isSleeping: boolean;
  readonly isStopped: boolean;
  /** By its title, in which it says what it does. */
  readonly isIdle: boolean;
}

/** @returns undefined if the process has ended */
async function lookOnceStopped(pid: number, until: number): Promise<Look | undefined> {
  for (;;) {
    const seen = look(pid);
    if (seen === undefined || seen.isStopped) return seen;
    if (performance.now() > until) throw new Error(`The process ${pid} of PostgreSQL does not stop.`);
    await setTimeout(1);
  }
}

/** @returns undefined if the process has ended */
function look(pid: number): Look | undefined {
  try {
    // The state first: once it is stopped, its title stays.
    const [state = "", title = ""] =
      process.platform === "linux"
        ? [
            readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.[0],
            readFileSync(`/proc/${pid}/cmdline`, "utf8").replace(/\0+$/, ""),
          ]
        : (/^(\S+)\s+(.*)$/
            .exec(execFileSync("ps", ["-o", "state=,args=", "-p", `${pid}`], { encoding: "utf8" }))
            ?.slice(1) ?? []);
    return {
      isSleeping: /^[SI]/.test(state),
      isStopped: state.startsWith("T"),
      isIdle: title.trimEnd().endsWith(" idle"),
    };
  } catch {
    return undefined;
  }
}
