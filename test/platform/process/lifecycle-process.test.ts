/** A real process always ends after a signal, with the right exit code. */
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { setTimeout as elapsed } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { waitFor } from "../../support/wait-for.ts";

describe("run, in a real process", () => {
  const program = fileURLToPath(new URL("../../support/lifecycle-program.ts", import.meta.url));
  const children: ChildProcessByStdio<null, Readable, Readable>[] = [];
  afterEach(() => {
    for (const child of children.splice(0)) child.kill("SIGKILL");
  });

  async function start(...names: string[]) {
    const child = spawn(process.execPath, [program, ...names], { stdio: ["ignore", "pipe", "pipe"] });
    children.push(child);
    let output = "";
    child.stdout.on("data", (chunk) => {
      output += String(chunk);
    });
    const ended = once(child, "close");
    while (!output.includes('"running"')) await once(child.stdout, "data");
    return {
      kill: (signal: NodeJS.Signals) => child.kill(signal),
      stopping: () => waitFor(() => expect(output).toContain('"Stopping"')),
      async end() {
        const [code] = await ended;
        return { code: Number(code), messages: output.trimEnd().split("\n").map(messageOf), output };
      },
    };
  }

  function messageOf(line: string): unknown {
    const { msg, part } = JSON.parse(line);
    return part === undefined ? msg : `${part}: ${msg}`;
  }

  it.each(["SIGTERM", "SIGINT"] as const)("%s stops the parts in order and exits 0", async (signal) => {
    const child = await start("quick", "slow");
    child.kill(signal);
    expect(await child.end()).toMatchObject({
      code: 0,
      messages: ["running", "Stopping", "draining", "slow: part stops", "quick: part stops", "Stopped"],
    });
  });

  it.each([
    ["SIGTERM", 143],
    ["SIGINT", 130],
  ] as const)("a second signal, %s, ends it at once with %i", async (signal, code) => {
    const child = await start("stuck");
    child.kill("SIGTERM");
    await child.stopping();
    // Sooner, it counts as the same key press.
    await elapsed(200);
    child.kill(signal);
    expect(await child.end()).toMatchObject({ code });
  });

  it.each([["stuck"], ["broken"]])(
    "a part that is %s makes it exit 1, after the others have stopped",
    async (part) => {
      const child = await start("quick", part);
      child.kill("SIGTERM");
      const { code, messages } = await child.end();
      expect(code).toBe(1);
      expect(messages).toContain("quick: part stops");
      expect(messages.at(-1)).toBe("Stopped");
    },
  );

  it("ends by itself right after its parts have stopped", async () => {
    const child = await start("quick", "slow", "alone");
    const begun = performance.now();
    expect(await child.end()).toMatchObject({ code: 0 });
    expect(performance.now() - begun).toBeLessThan(10_000);
  });

  it.each([["throw"], ["reject"]])("a defect (%s) is logged as fatal and exits 1", async (defect) => {
    const child = await start("slow", defect);
    const { code, output } = await child.end();
    expect(code).toBe(1);
    expect(output).toMatch(/"level":"fatal".*by nobody in particular.*lifecycle-program\.ts/);
  });
});
