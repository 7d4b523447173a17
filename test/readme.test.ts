/** The tour of the README, pasted unchanged, prints the output that the README shows. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, describe, expect, it } from "vitest";
import { root } from "./support/program.ts";
import { type Server, startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const readme = readFileSync(join(root, "README.md"), "utf8");
const base = "BASE=http://127.0.0.1:8080\n";

function block(language: string, begins: string): string {
  const [, text = ""] = readme.split(`\`\`\`${language}\n${begins}`);
  expect(text, `a block of ${language} that begins with ${begins}`).not.toBe("");
  return begins + text.slice(0, text.indexOf("```"));
}

let server: Server;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startOwnServer("PGlite");
  cleanup.defer(() => server.stop());
});

describe("the tour", () => {
  /** The tour names its user by the second; a reader does not walk it twice within one. */
  let second = 0;
  const now = () => Math.floor(Date.now() / 1000);
  it.each(["sh", "bash"])("runs in %s", async (shell) => {
    await waitFor(() => expect(now()).toBeGreaterThan(second));
    const tour = block("sh", base).replace(base, `BASE=${server.origin}\n`);
    const { stdout, stderr } = await promisify(execFile)(shell, ["-c", tour]);
    second = now();
    const lines = stdout.trimEnd().split("\n");
    const expected = block("text", '{"id":"u-').trimEnd().split("\n");
    expect(lines, stdout + stderr).toHaveLength(expected.length);
    for (const [index, line] of expected.entries()) {
      const pattern = line.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&").replaceAll("…", ".*");
      expect(lines[index]).toMatch(new RegExp(`^${pattern}$`));
    }
    expect(stderr).toBe("");
  });
});

it("has 150 lines at most", () => {
  expect(readme.trimEnd().split("\n").length).toBeLessThanOrEqual(150);
});
