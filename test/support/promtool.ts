/** promtool, the checker that comes with Prometheus. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { exercised } from "./backends.ts";

/** The program; undefined where this machine has none. */
export function findPromtool(): string | undefined {
  return [...(process.env["PATH"] ?? "").split(delimiter), "/usr/bin", "/opt/homebrew/bin"]
    .map((directory) => join(directory, "promtool"))
    .find((program) => existsSync(program));
}

/** Runs it. @returns both of its outputs @throws with them if it finds something wrong */
export function promtool(args: readonly string[], options: { readonly input?: string } = {}): string {
  const program = findPromtool();
  if (program === undefined) throw new Error("promtool is not on this machine.");
  exercised("promtool");
  return execFileSync(program, args, { encoding: "utf8", stdio: "pipe", ...options });
}
