import { randomUUID } from "node:crypto";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { BACKENDS_FILE } from "./test/support/backends.ts";
import ClosingLines from "./test/support/reporter.ts";
import { useRunDirectory } from "./test/support/run-directory.ts";

useRunDirectory();

// The workers inherit it and write there which databases they ran on.
process.env[BACKENDS_FILE] = join(tmpdir(), `gatepost-test-${randomUUID()}`);

export default defineConfig({
  // Packages find each other's sources: they are built for `npm pack` alone.
  resolve: { tsconfigPaths: true },
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: ["test/support/postgresql/global-setup.ts"],
    reporters: ["default", new ClosingLines()],
    // Each file starts services and a database of its own, and waits for them more than half of its time: five for two
    // processors, and on a large machine no more than its memory has room for.
    fileParallelism: true,
    // A worker loads the modules once and compiles the embedded database once, which is a quarter of the time of all
    // tests. So a file takes back whatever it changes in the process: a timer's fake, a variable, a rule.
    isolate: false,
    maxWorkers: Math.min(Math.ceil(availableParallelism() * 2.5), 8),
    // Time-outs end what hangs; they measure nothing, and no busy machine reaches them.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
