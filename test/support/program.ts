/** Programs of this repository as processes of their own: what they write, and how they end. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";

/** The repository. */
export const root = resolve(import.meta.dirname, "../..");

export interface Program {
  readonly child: ChildProcess;
  /** Both outputs so far, as they came. */
  output(): string;
  stdout(): string;
  stderr(): string;
  /** Waits for it to end by itself. @returns its exit code, or the signal that ended it */
  ended(): Promise<number | NodeJS.Signals>;
}

const started = new Set<ChildProcess>();

/**
 * Starts a program that must end by itself or be ended by the test; what is left is killed by `killAll`.
 * @param env all of its environment, beside PATH
 */
export function startProgram(
  command: readonly [string, ...string[]],
  env: Record<string, string>,
  cwd = root,
): Program {
  const [file, ...args] = command;
  const child = spawn(file, args, {
    cwd,
    env: { PATH: process.env["PATH"] ?? "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  started.add(child);
  const written = { both: "", stdout: "", stderr: "" };
  for (const name of ["stdout", "stderr"] as const) {
    child[name].setEncoding("utf8").on("data", (text: string) => {
      written[name] += text;
      written.both += text;
    });
  }
  const closed = once(child, "close");
  closed.then(
    () => started.delete(child),
    () => started.delete(child),
  );
  return {
    child,
    output: () => written.both,
    stdout: () => written.stdout,
    stderr: () => written.stderr,
    async ended() {
      const [code, signal] = await closed;
      return code ?? signal;
    },
  };
}

/** Starts a program of the repository, as the npm scripts do. */
export function startNode(file: string, env: Record<string, string>): Program {
  const checks = file === "src/start.js" ? [] : ["--import", "./src/installed.js"];
  return startProgram([process.execPath, ...checks, file], env);
}

/** For a suite's cleanup: ends what failed tests have left. */
export function killAll(): void {
  for (const child of started) child.kill("SIGKILL");
}
