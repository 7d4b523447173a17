/** What the harness has started ends with it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const program = fileURLToPath(new URL("ending-program.ts", import.meta.url));

describe("a harness", () => {
  it.each(["SIGINT", "SIGTERM", "exception", "rejection"] as const)(
    "takes what it has started along: %s",
    async (end) => {
      const harness = spawn(process.execPath, [program, end], { stdio: ["pipe", "pipe", "ignore"] });
      const closed = once(harness, "close");
      let output = "";
      const started = new Promise<void>((resolve) => {
        harness.stdout.setEncoding("utf8").on("data", (text: string) => {
          output += text;
          if (output.includes("started")) resolve();
        });
      });
      await started;
      if (end === "SIGINT" || end === "SIGTERM") harness.kill(end);
      else harness.stdin.write("now\n");
      // Not before everybody has closed the output.
      const [code] = await closed;
      expect(output).toBe("started\n");
      expect(code).not.toBe(0);
    },
  );
});
