/** The messages for missing packages, outdated packages, and another Node.js. */
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, it } from "vitest";
import { root } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const directory = mkdtempSync(join(tmpdir(), "gatepost-installed-"));
suiteCleanup().defer(() => rmSync(directory, { recursive: true, force: true }));

interface Installation {
  readonly node: string;
  /** Versions in node_modules. */
  readonly installed: Readonly<Record<string, string>>;
}

/**
 * The start, or another command, in a copy that has these packages. It needs `hono` 4.13.19 and `jose` 6.2.17, and
 * `vitest` 5.1.1 to work on it.
 */
function startIn({ node, installed }: Installation, command = ["src/start.js"]) {
  const copy = mkdtempSync(join(directory, "copy-"));
  const write = (file: string, content: unknown) => {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    writeFileSync(join(copy, file), typeof content === "string" ? content : JSON.stringify(content));
  };
  for (const file of ["src/start.js", "src/installed.js", "src/platform/process/v8-flags.ts"]) {
    mkdirSync(dirname(join(copy, file)), { recursive: true });
    cpSync(join(root, file), join(copy, file));
  }
  write("src/main.ts", "process.stdout.write('started');");
  const dependencies = { hono: "4.13.19", jose: "6.2.17" };
  const devDependencies = { vitest: "5.1.1" };
  write("package.json", { type: "module", engines: { node }, dependencies, devDependencies });
  for (const [name, version] of Object.entries(installed)) {
    write(`node_modules/${name}/package.json`, { name, version });
  }
  const { status, stdout, stderr } = spawnSync(process.execPath, command, {
    cwd: copy,
    encoding: "utf8",
  });
  return { status, stdout, stderr };
}

const all = { hono: "4.13.19", jose: "6.2.17" };

it("starts where everything is there", () => {
  expect(startIn({ node: ">=24.9.0", installed: all })).toEqual({ status: 0, stdout: "started", stderr: "" });
});

it.each([
  ["nothing is installed", {}, ">=24.9.0", "The packages of gatepost are not installed. Run: npm ci\n"],
  [
    "a package is missing",
    { hono: "4.13.19" },
    ">=24.9.0",
    "The installed packages are not those of package.json: jose is missing from node_modules, and should be 6.2.17. Run: npm ci\n",
  ],
  [
    "a package is older",
    { ...all, hono: "4.12.0" },
    ">=24.9.0",
    "The installed packages are not those of package.json: hono is 4.12.0 in node_modules, and should be 4.13.19. Run: npm ci\n",
  ],
  [
    "Node.js is older than the installed one",
    { ...all, node: "99.1.0" },
    ">=99.1.0",
    `This is Node.js ${process.versions.node}, and gatepost needs >=99.1.0. The npm scripts, such as npm start, use the one in node_modules/.bin. Or: node_modules/.bin/node src/start.js\n`,
  ],
  [
    "Node.js is older, and none is installed",
    all,
    ">=99.1.0",
    `This is Node.js ${process.versions.node}, and gatepost needs >=99.1.0. Install it: npm ci brings one for the npm scripts, such as npm start, but npm ci --omit=dev does not.\n`,
  ],
])("prints one line: %s, and exits with 78", (_what, installed, node, stderr) => {
  expect(startIn({ node, installed })).toEqual({ status: 78, stdout: "", stderr });
});

it("says before the tests which package `npm ci --omit=dev` has left out, and how to get it", () => {
  const check = ["src/installed.js", "--all"];
  const complete = { node: ">=24.9.0", installed: { ...all, vitest: "5.1.1" } };
  expect(startIn(complete, check)).toEqual({ status: 0, stdout: "", stderr: "" });
  expect(startIn({ node: ">=24.9.0", installed: all }, check)).toEqual({
    status: 78,
    stdout: "",
    stderr:
      "The installed packages are not those of package.json: vitest is missing from node_modules, and should be 5.1.1. Run: npm ci\n",
  });
});

it("is imported by every npm script that starts a program", () => {
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  for (const name of ["start", "dev"]) expect(scripts[name]).toMatch(/ src\/start\.js$/);
  for (const name of ["migrate", "demo", "fakes"])
    expect(scripts[name]).toMatch(/^node --import \.\/src\/installed\.js /);
  expect(scripts.test).toMatch(/^node src\/installed\.js --all && /);
});
