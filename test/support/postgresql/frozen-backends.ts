import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { codeOf } from "../../../src/platform/base/error-code.ts";

/**
 * Stops processes of PostgreSQL that serve connections, each while it is between two statements. In the middle of one
 * it may hold a lock on memory that all processes of the server share, and the whole server would stand still with it,
 * for all other tests too.
 * @param pids those that have ended are passed over
 * @returns lets them go on
 * @param patienceMs how long to wait for each to be between two statements
 * @throws Error if one was not for so long; then all go on
 */
export async function freezeBackends(pids: readonly number[], patienceMs = 10_000): Promise<() => void> {
  const thaw = () => void pids.map((pid) => signal(pid, "SIGCONT"));
  try {
    for (const pid of pids) await freeze(pid, patienceMs);
  } catch (error) {
    thaw();
    throw error;
  }
  return thaw;
}

async function freeze(pid: number, patienceMs: number): Promise<void> {
  const until = performance.now() + patienceMs;
  while (signal(pid, "SIGSTOP")) {
    const title = await titleOnceStopped(pid);
    if (title === undefined || / idle( in transaction)?$/.test(title)) return;
    signal(pid, "SIGCONT");
    if (performance.now() > until) throw new Error(`A process of PostgreSQL was never idle: ${title}`);
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

/** What the process says that it does, once it has stopped; undefined if it has ended. */
async function titleOnceStopped(pid: number): Promise<string | undefined> {
  for (;;) {
    const [state, title] = look(pid);
    if (state === undefined) return undefined;
    if (state.startsWith("T")) return title;
    await setTimeout(1);
  }
}

function look(pid: number): readonly [state: string | undefined, title: string] {
  try {
    if (process.platform === "linux") {
      const title = readFileSync(`/proc/${pid}/cmdline`, "utf8").replace(/\0+$/, "");
      return [readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.[0], title.trimEnd()];
    }
    const [, state, title = ""] =
      /^(\S+)\s+(.*)$/.exec(
        execFileSync("ps", ["-o", "state=,args=", "-p", `${pid}`], { encoding: "utf8" }),
      ) ?? [];
    return [state, title.trimEnd()];
  } catch {
    // It has ended.
    return [undefined, ""];
  }
}
