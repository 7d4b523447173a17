/** The tours of the README and of docs/getting-started.md, pasted unchanged, print what the pages show. */
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
    // A machine that is busy may give a 503, which the tour tries again, as the lines show.
    expect(stderr.replaceAll(/^curl: \(22\) .* 503\n/gm, "")).toBe("");
  });
});

/** The commands of the tours, each with the lines that continue it, without what they print. */
function commandsOf(page: string): string {
  const tours = page.slice(page.indexOf("\n## A tour of auth"), page.indexOf("\n## Where it keeps things"));
  const blocks = [...tours.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = ""]) => block).join("");
  return [...blocks.matchAll(/^\$ ((?:.*\\\n)*.*)$/gm)].map(([, command]) => command).join("\n");
}

it("the tour of docs/getting-started.md needs nothing that it has not set", async () => {
  const commands = commandsOf(readFileSync(join(root, "docs/getting-started.md"), "utf8"))
    .replaceAll("http://127.0.0.1:8080", server.origin)
    .replaceAll("127.0.0.1:9090", server.grpc)
    .replaceAll(".data/", `${server.env["DATA_DIR"]}/`);
  const { stdout } = await promisify(execFile)("sh", ["-euc", commands], { cwd: root });
  for (const shown of ['{"active":false}', '"state": "NOTIFICATION_STATE_COMPLETED"', '{"viewed":true}'])
    expect(stdout).toContain(shown);
  expect(stdout.match(/"token":"a-(?:phone|tablet)","messageId"/g)).toHaveLength(2);
});

it("has 150 lines at most", () => {
  expect(readme.trimEnd().split("\n").length).toBeLessThanOrEqual(150);
});
