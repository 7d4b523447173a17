/** The runtimes of `npm run check:packages`, where the registry does not have them. */
import { afterEach, expect, it, vi } from "vitest";
import { installRuntimes } from "../../scripts/packages/runtimes.ts";

afterEach(() => {
  vi.unstubAllEnvs();
});

const tools = {
  folder: "/nowhere",
  install: () => Promise.reject(new Error("404 Not Found")),
};

it("names those that are missing, and fails where CI is set", async () => {
  vi.stubEnv("CI", "");
  expect(await installRuntimes(tools)).toMatchObject({
    missing: ["Node.js 20", "Node.js 22", "Bun", "Deno"],
  });
  vi.stubEnv("CI", "true");
  await expect(installRuntimes(tools)).rejects.toThrow("Node.js 20 may not be missing. 404 Not Found");
});
