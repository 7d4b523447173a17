/** systemd-analyze, the checker that comes with systemd. */
import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";

/** The program; undefined where this machine has none. */
export function findSystemdAnalyze(): string | undefined {
  return (process.env["PATH"] ?? "")
    .split(delimiter)
    .map((directory) => join(directory, "systemd-analyze"))
    .find((program) => existsSync(program));
}
