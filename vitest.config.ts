import { randomUUID } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineConfig } from "vitest/config";
import { BACKENDS_FILE } from "./test/support/backends.ts";
import ClosingLines from "./test/support/reporter.ts";

// The workers inherit it and write there which databases they ran on.
process.env[BACKENDS_FILE] = join(tmpdir(), `gatepost-test-${randomUUID()}`);

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/bench/**"],
    globalSetup: ["test/support/postgresql/global-setup.ts"],
    reporters: ["default", new ClosingLines()],
    // Each test file may start services and a database of its own: two at a time fit a small machine.
    fileParallelism: true,
    maxWorkers: 2,
    // Time-outs end what hangs; they measure nothing, and no busy machine reaches them.
    testTimeout: 120_000,
    hookTimeout: 120_000,
    expect: { poll: { timeout: 60_000 } },
  },
});
