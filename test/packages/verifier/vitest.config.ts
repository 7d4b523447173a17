/** `npm run check:verifier`: apart from the other tests, as it installs frameworks into a temporary folder. */
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    root: import.meta.dirname,
    include: ["*.check.ts"],
    maxWorkers: 1,
    testTimeout: 120_000,
    hookTimeout: 600_000,
  },
});
