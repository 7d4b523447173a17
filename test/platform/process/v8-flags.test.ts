/** The program runs with V8's flags however it was started, unless its operator chose others. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { startFlags } from "../../../src/platform/process/v8-flags.ts";
import { killAll, startProgram } from "../../support/program.ts";

const program = join(import.meta.dirname, "v8-flags-program.ts");

async function run(nodeFlags: readonly string[], env: Record<string, string> = {}) {
  const { ended, stdout, output } = startProgram([process.execPath, ...nodeFlags, program], env);
  expect(await ended(), output()).toBe(0);
  const lines = stdout().trimEnd().split("\n");
  const flags: string[] = JSON.parse(lines.at(-1) ?? "[]");
  return { pids: lines.slice(0, -1), flags };
}

describe.skipIf(process.platform === "win32")("a program", () => {
  afterEach(killAll);

  it("replaces itself once, with the flags that are missing, and keeps its process id", async () => {
    const { pids, flags } = await run([]);
    expect(flags).toEqual(startFlags);
    expect(pids).toHaveLength(2);
    expect(new Set(pids).size).toBe(1);
    expect((await run(startFlags)).pids).toHaveLength(1);
  });

  it("leaves a flag alone that its operator gave another value", async () => {
    const [, pretenuring] = startFlags;
    expect((await run(["--max-semi-space-size=64"])).flags).toEqual([
      "--max-semi-space-size=64",
      pretenuring,
    ]);
    expect((await run(["--max_semi_space_size=64"])).flags).toEqual([
      "--max_semi_space_size=64",
      pretenuring,
    ]);
    expect((await run([], { NODE_OPTIONS: "--max-semi-space-size=64" })).flags).toEqual([pretenuring]);
  });

  it.runIf(process.platform === "linux")("runs so where start.js starts it", async () => {
    const env = { SERVICES: "auth", DB_HOST: "127.0.0.1", DB_PORT: "1", LOGGING_LEVEL: "info" };
    const anyPort = { SERVER_PORT: "0", GRPC_PORT: "0", MANAGEMENT_PORT: "0" };
    const { child, output } = startProgram([process.execPath, "src/start.js"], { ...env, ...anyPort });
    while (!output().includes("istening") && child.exitCode === null) await setTimeout(20);
    const command = readFileSync(`/proc/${child.pid}/cmdline`, "utf8").split("\0");
    expect(command).toEqual(expect.arrayContaining([...startFlags]));
  });
});
