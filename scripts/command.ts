/**
 * Runs the tools of the scripts. A tool is always the one that this repository pins in node_modules, whether a
 * script was started by npm or by hand.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { delimiter, join, resolve } from "node:path";

/** The root of the repository: the working directory of every script, wherever it was started. */
export const ROOT = resolve(import.meta.dirname, "..");

/** The result of a command. */
export interface Outcome {
  readonly ok: boolean;
  readonly stdout: string;
  /** stdout and stderr, in the order of arrival. */
  readonly output: string;
}

/**
 * Runs a command at the root and waits for it. Its standard input is closed, so that a tool with a prompt fails
 * instead of waiting for input for ever.
 *
 * @param show also writes the output to this terminal, as it arrives
 */
export async function run(command: string, args: readonly string[], show = false): Promise<Outcome> {
  const path = [join(ROOT, "node_modules", ".bin"), process.env["PATH"]].join(delimiter);
  const colours = show && process.stdout.isTTY ? { FORCE_COLOR: "1" } : {};
  const child = spawn(command, args, {
    cwd: ROOT,
    env: { ...colours, ...process.env, PATH: path },
    stdio: ["ignore", "pipe", "pipe"],
  });
  if (show) {
    child.stdout.pipe(process.stdout, { end: false });
    child.stderr.pipe(process.stderr, { end: false });
  }
  const stdout: Buffer[] = [];
  const output: Buffer[] = [];
  child.stdout.on("data", (chunk: Buffer) => stdout.push(chunk));
  child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
  child.stderr.on("data", (chunk: Buffer) => output.push(chunk));
  const [code] = await once(child, "close");
  const text = (chunks: Buffer[]): string => Buffer.concat(chunks).toString("utf8").trimEnd();
  return { ok: code === 0, stdout: text(stdout), output: text(output) };
}

/** The stdout of a command. @throws with all of its output if it fails */
export async function outputOf(command: string, ...args: string[]): Promise<string> {
  const { ok, stdout, output } = await run(command, args);
  if (!ok) throw new Error(`${command} ${args.join(" ")} failed:\n${output}`);
  return stdout;
}

/** The usage of a program of this repository: its opening comment. */
export function usageIn(file: string): string {
  const [, comment = ""] = /^\/\*\*\n([\s\S]*?)\n \*\/\n/.exec(readFileSync(file, "utf8")) ?? [];
  return comment.replaceAll(/^ \* ?/gm, "").replaceAll("`", "");
}

/** Writes a line to the terminal or the CI log. */
export function say(line = ""): void {
  process.stdout.write(`${line}\n`);
}
