/** What `npm run check:packages` runs apart from the other tests: it installs frameworks, and takes minutes. */
import { join } from "node:path";
import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { tsconfigPaths: true },
  test: {
    root: join(import.meta.dirname, "../.."),
    include: ["test/packages/**/*.check.ts"],
    maxWorkers: 1,
    testTimeout: 600_000,
    hookTimeout: 600_000,
  },
});
