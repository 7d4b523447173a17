/** A suite that fails to start is one failure: the closing line counts it once, and what had started is closed. */
import { globSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { killAll, root, startProgram } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

suiteCleanup().defer(killAll);

/** Runs the suite of test/support/fixtures as a run of its own. @returns what it wrote, and the closing line of stdout */
async function runOf(fixture: string): Promise<{ output: string; closing: string | undefined }> {
  const config = "test/support/fixtures/vitest.config.ts";
  const vitest = `${root}/node_modules/vitest/vitest.mjs`;
  const run = startProgram([process.execPath, vitest, "run", "--config", config, fixture], { NO_COLOR: "1" });
  expect(await run.ended()).toBe(1);
  // The two streams of a process come in any order.
  return { output: run.output(), closing: run.stdout().trimEnd().split("\n").at(-1) };
}

describe("a beforeAll that throws half way", () => {
  it("is the only failure, and what it had started is closed, the last thing first", async () => {
    const { output, closing } = await runOf("failing-start");
    expect(output).toContain("Error: the second server does not start");
    expect(output.match(/^(opened|closed) .*$/gm)).toEqual([
      "opened the directory",
      "opened the first server",
      "closed the first server",
      "closed the directory",
    ]);
    expect(closing).toBe("0 passed, 1 failed, 1 skipped");
  });

  it("would be two with a hook of its own that closes what was never started", async () => {
    const { closing } = await runOf("failing-end");
    expect(closing).toBe("0 passed, 2 failed, 1 skipped");
  });
});

it("suites end what they started by their suiteCleanup, and have no afterAll", () => {
  const files = globSync("test/**/*.ts", { cwd: root });
  expect(files.length).toBeGreaterThan(200);
  const withHook = files.filter((file) => /^\s*afterAll\s*\(/m.test(readFileSync(`${root}/${file}`, "utf8")));
  expect(withHook.toSorted()).toEqual([
    "test/support/fixtures/failing-end.ts",
    "test/support/suite-cleanup.ts",
  ]);
});

it("tests look for waiting statements in their own database: all files share a server", () => {
  const waits = globSync("test/**/*.ts", { cwd: root }).flatMap((file) =>
    [
      ...readFileSync(`${root}/${file}`, "utf8").matchAll(
        /from pg_stat_activity\b[^`]*wait_event_type[^`]*`/g,
      ),
    ].map(([statement]) => ({ file, statement })),
  );
  expect(waits.length).toBeGreaterThan(5);
  expect(waits.filter(({ statement }) => !statement.includes("datname"))).toEqual([]);
});
