/** `npm run release`, in a clone of its own, and the workflow that publishes what it tags. */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  globSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { parse } from "yaml";
import { killAll, root, startProgram } from "../support/program.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const temporary = mkdtempSync(join(tmpdir(), "gatepost-release-"));
const clone = join(temporary, "clone");
const repository = "https://github.com/gatepost/gatepost";
const cleanup = suiteCleanup();
cleanup.defer(killAll);
cleanup.defer(() => rmSync(temporary, { recursive: true, force: true }));

const read = (file: string) => readFileSync(join(clone, file), "utf8");
const write = (file: string, text: string) => writeFileSync(join(clone, file), text);
const author = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
const git = (...args: string[]) =>
  execFileSync("git", [...author, ...args], { cwd: clone, encoding: "utf8" });
const commit = () => git("commit", "--quiet", "--all", "--allow-empty", "--message", "Test");

async function run(script: "release" | "breaking", ...args: string[]) {
  // Nothing of the registry is needed.
  const env = { npm_config_offline: "true", npm_config_cache: join(temporary, "cache"), HOME: temporary };
  const program = startProgram([process.execPath, `scripts/${script}.ts`, ...args], env, clone);
  return { code: await program.ended(), output: program.output() };
}

const { version }: { version: string } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const [major = 0, minor = 0, patch = 0] = version.split(".").map(Number);
const next = `${major}.${minor + 1}.0`;
const small = `${major}.${minor}.${patch + 1}`;

let start: string;
beforeAll(() => {
  execFileSync("git", ["clone", "--quiet", "--no-tags", root, clone]);
  symlinkSync(join(root, "node_modules"), join(clone, "node_modules"));
  write(".git/info/exclude", "/node_modules\n");
  // What is not committed yet is tested, too.
  for (const file of [
    "package.json",
    "package-lock.json",
    ...globSync("{scripts,packages/*}/*.{ts,json}", { cwd: root }),
  ])
    cpSync(join(root, file), join(clone, file));
  git("add", "scripts", "packages");
  commit();
  start = git("rev-parse", "HEAD").trim();
});
beforeEach(() => {
  git("reset", "--quiet", "--hard", start);
  for (const tag of git("tag").split("\n").filter(Boolean)) git("tag", "--delete", tag);
});

/** As somebody who has written what the release changes. */
function describeRelease(released: string): void {
  write("CHANGELOG.md", `# Changelog\n\n## ${released}, unreleased\n\nSomething.\n`);
  commit();
}

function edit(file: string, from: string, to: string): void {
  write(file, read(file).replace(from, to));
  commit();
}
/** Npm, which is offline here, has to ask for what this needs. */
const unlock = () =>
  edit("packages/client/package.json", '"dependencies": {', '"dependencies": { "other": "1.0.0",');
const losePlace = () => edit("deploy/helm/gatepost/Chart.yaml", "\nappVersion:", "\nappRelease:");

describe("npm run release -- <version>", () => {
  it("moves the versions, the ranges and the chart, and dates the changelog", async () => {
    describeRelease(next);
    const { code, output } = await run("release", next);
    expect(code, output).toBe(0);
    expect(output).toContain(`git tag --annotate v${next}`);
    const changed = git("diff", "--name-only").trim().split("\n");
    expect(changed).toEqual([
      "CHANGELOG.md",
      "deploy/helm/gatepost/Chart.yaml",
      "deploy/kubernetes/gatepost.yaml",
      "package-lock.json",
      "package.json",
      ...["client", "contracts", "verifier"].map((name) => `packages/${name}/package.json`),
    ]);
    const lock = JSON.parse(read("package-lock.json"));
    const client = { version: next, dependencies: { "@gatepost/contracts": next } };
    expect(lock.packages["packages/client"]).toMatchObject(client);
    expect(lock.packages[""].version).toBe(next);
    expect(git("diff")).not.toMatch(new RegExp(`^\\+.*"?${version.replaceAll(".", "\\.")}`, "m"));
    expect(read("CHANGELOG.md")).toMatch(new RegExp(`^## ${next}, 2\\d{3}-\\d\\d-\\d\\d$`, "m"));
    commit();
    git("update-ref", "refs/remotes/origin/main", "HEAD");
    const checked = await run("release", "--check", `v${next}`, repository);
    expect(checked).toEqual({ code: 0, output: expect.stringContaining("on main") });
  });

  it.each<[string, string, () => void, string]>([
    ["is no version", "1.2", () => undefined, "1.2 is no version"],
    ["is below the newest", "0.0.1", () => undefined, "0.0.1 is below"],
    ["is tagged", next, () => git("tag", `v${next}`), `There is a tag v${next} already`],
    ["is not in the changelog", next, () => describeRelease(small), `begins with "## ${small}, unreleased"`],
    ["would take what is not committed", next, () => write("new.txt", ""), "?? new.txt"],
    ["npm cannot lock", next, () => unlock(), "npm cannot renew the lock file: nothing is changed"],
    ["has lost a place", next, () => losePlace(), "Chart.yaml has no version at /(?<=^appVersion"],
  ])("refuses a version that %s, and changes nothing", async (_name, asked, prepare, message) => {
    describeRelease(next);
    prepare();
    const before = git("status", "--porcelain");
    const { code, output } = await run("release", asked);
    expect(code).toBe(1);
    expect(output).toContain(message);
    expect(output).not.toContain("    at ");
    expect(git("status", "--porcelain")).toBe(before);
    rmSync(join(clone, "new.txt"), { force: true });
  });
});

it.each([
  ["v99.0.0", repository, "Not 99.0.0: package", () => undefined],
  [`v${version}`, "https://github.com/other/fork", "not https://github.com/other/fork", () => undefined],
  [`v${version}`, repository, "has no version at", losePlace],
])("--check refuses %s of %s, as %s", async (tag, of, message, prepare) => {
  prepare();
  write("CHANGELOG.md", `# Changelog\n\n## ${version}, 2026-01-01\n`);
  const { code, output } = await run("release", "--check", tag, of);
  expect(code).toBe(1);
  expect(output).toContain(message);
});

it("what breaks in a contract cannot be released with a version that does not declare it", async () => {
  git("tag", `v${version}`);
  const file = "openapi/otp-webhook.yaml";
  const raised = (text: string) => text.replace(/(?<=^ {2}version: ).+$/m, "99.0.0");
  write(file, raised(read(file)).replace(/^ {4}post:$/m, "    put:"));
  const release = async (released: string) => {
    write("package.json", JSON.stringify({ ...JSON.parse(read("package.json")), version: released }));
    return run("breaking");
  };
  const refused = await release(small);
  expect(refused.output).toContain(`from ${version} to ${small} does not declare what breaks in ${file}`);
  expect(refused.code).toBe(1);
  expect(await release(next)).toMatchObject({ code: 0 });
});

describe("the workflow that publishes", () => {
  const text = readFileSync(join(root, ".github/workflows/release.yml"), "utf8");
  const { permissions, jobs } = parse(text);

  it("has no secret, and lets the job publish that runs nothing of this repository", () => {
    expect(text).not.toContain("secrets.");
    expect(permissions).toEqual({});
    expect(jobs.pack.permissions).toEqual({ contents: "read" });
    expect(jobs.publish).toMatchObject({ needs: "pack", permissions: { "id-token": "write" } });
    expect(JSON.stringify(jobs.publish.steps)).not.toContain("actions/checkout");
  });

  it("takes other people's actions by the commit", () => {
    const used = [...text.matchAll(/uses: (.+)/g)].map(([, action]) => action);
    expect(used.length).toBeGreaterThan(3);
    for (const action of used) expect(action).toMatch(/^[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it("publishes all packages, those first that others need", () => {
    const [, list = ""] = /for name in (.+); do/.exec(text) ?? [];
    const order = list.split(" ");
    const names = globSync("*", { cwd: join(root, "packages") });
    expect(order.toSorted()).toEqual(names.toSorted());
    for (const [index, name] of order.entries()) {
      const { dependencies = {}, publishConfig } = JSON.parse(
        readFileSync(join(root, `packages/${name}/package.json`), "utf8"),
      );
      expect(publishConfig).toEqual({ access: "public", provenance: true });
      const needed = Object.keys(dependencies).filter((other) => other.startsWith("@gatepost/"));
      for (const other of needed) expect(order.slice(0, index)).toContain(other.slice("@gatepost/".length));
    }
  });
});

it.each(globSync("packages/*", { cwd: root }))("%s has a source for each of its entries", (folder) => {
  const { exports }: { exports: Record<string, string | { types: string; default: string }> } = JSON.parse(
    readFileSync(join(root, folder, "package.json"), "utf8"),
  );
  const built = Object.values(exports).flatMap((entry) =>
    typeof entry === "string"
      ? []
      : [entry.types.replace(/\.d\.ts$/, ""), entry.default.replace(/\.js$/, "")],
  );
  const sources = folder === "packages/contracts" ? "gen" : `${folder}/src`;
  const missing = built.filter(
    (file) => !existsSync(join(root, file.replace("./dist", sources).concat(".ts"))),
  );
  expect(built.length).toBeGreaterThan(0);
  expect(missing).toEqual([]);
});
