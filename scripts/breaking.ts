/**
 * `npm run breaking [-- <commit>]`: checks that no published contract has an undeclared breaking change. Compares proto/ (with buf) and openapi/
 * with the baseline: the commit that is named as argument, or else the newest release tag below HEAD; before the
 * first release origin/main, or else the previous commit.
 *
 * A breaking change of an OpenAPI document is declared by raising its `info.version`: the major number,
 * or the minor one while the major is 0. The removal of a document is declared by the version of package.json. That is
 * also the version of the packages, which hold the contracts: where it has moved since the baseline, for a release, it
 * has to declare every break.
 * A proto package must never have a breaking change: it gets a successor, `auth.v2`. A change that buf reports
 * although the wire does not show it is declared in proto/declared-breaks.yaml.
 */
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { parse } from "yaml";
import { readArguments } from "../src/command.ts";
import { outputOf, ROOT, run, say, usageIn } from "./command.ts";
import type { Break } from "./openapi/breaking.ts";
import { declaresBreak, openapiBreaks } from "./openapi/breaking.ts";
import type { JsonObject } from "./openapi/document.ts";
import { objectOf } from "./openapi/document.ts";
import { protoBreaks } from "./proto/breaking.ts";

const {
  positionals: [asked],
} = readArguments({ usage: usageIn(import.meta.filename), options: {}, operands: [0, 1] });

interface Baseline {
  readonly name: string;
  readonly commit: string;
}

async function git(...args: string[]): Promise<string | undefined> {
  const { ok, stdout } = await run("git", args);
  return ok && stdout !== "" ? stdout : undefined;
}

async function isShallow(): Promise<boolean> {
  return (await git("rev-parse", "--is-shallow-repository")) === "true";
}

/** The commit with this name; undefined if there is none. */
async function namedBaseline(name: string): Promise<Baseline | undefined> {
  const commit = await git("rev-parse", "--verify", "--quiet", `${name}^{commit}`);
  return commit === undefined ? undefined : { name, commit };
}

/** The baseline if none is named; undefined in a repository without an earlier commit, or a shallow clone. */
async function findBaseline(): Promise<Baseline | undefined> {
  const head = await git("rev-parse", "--verify", "HEAD");
  const main = await git("rev-parse", "--verify", "--quiet", "origin/main");
  const names = [
    await git("describe", "--tags", "--abbrev=0"),
    main === head ? undefined : "origin/main",
    "HEAD^",
  ];
  for (const name of names.filter((candidate) => candidate !== undefined)) {
    const found = await namedBaseline(name);
    if (found) return found;
  }
  return undefined;
}

/** Writes the baseline's contracts into a folder. @returns their paths */
async function checkOut({ commit }: Baseline, folder: string): Promise<string[]> {
  const paths = ["openapi", "proto", "buf.yaml", "package.json"];
  const files = (await outputOf("git", "ls-tree", "-r", "--name-only", commit, "--", ...paths)).split("\n");
  for (const file of files.filter((name) => name !== "")) {
    await mkdir(dirname(join(folder, file)), { recursive: true });
    await writeFile(join(folder, file), await outputOf("git", "show", `${commit}:${file}`));
  }
  return files;
}

/** A file's content and the version that it states. */
async function read(folder: string, file: string): Promise<{ content: JsonObject; version: string }> {
  const content = objectOf(parse(await readFile(join(folder, file), "utf8")));
  const version = objectOf(content["info"])["version"] ?? content["version"];
  return { content, version: String(version ?? "0.0.0") };
}

/** A change, with the first place that it affects. */
function describe({ what, where: [first = "", ...more] }: Break): string {
  const others = more.length === 0 ? "" : ` and ${more.length} more`;
  return what.startsWith(first) ? what : `${what} (in ${first}${others})`;
}

/** The contracts with breaking changes, whether these are declared or not. */
const broken: string[] = [];

/** Checks one document. @returns false if it has undeclared breaking changes */
async function openapi(folder: string, file: string): Promise<boolean> {
  const gone = !existsSync(join(ROOT, file));
  const versioned = gone ? "package.json" : file;
  const [before, after] = [await read(folder, versioned), await read(ROOT, versioned)];
  const changes = gone
    ? ["the document is gone"]
    : openapiBreaks(before.content, after.content).map(describe);
  if (changes.length === 0) {
    say(`${file}: nothing breaks`);
    return true;
  }
  broken.push(file);
  const declared = declaresBreak(before.version, after.version);
  say(`${file}: ${declared ? "declared" : "UNDECLARED"} breaking changes (${changes.length})`);
  for (const change of changes) say(`  ${change}`);
  const part = before.version.startsWith("0.") ? "minor" : "major";
  if (declared) say(`  The version went from ${before.version} to ${after.version}, which declares them.`);
  else
    say(`  Take them back, or declare them: raise the ${part} number of ${before.version} in ${versioned}.`);
  return declared;
}

async function proto(folder: string, files: readonly string[]): Promise<boolean> {
  if (!files.includes("buf.yaml") || !files.some((file) => file.endsWith(".proto"))) return true;
  const { declared, undeclared } = await protoBreaks(folder);
  if (declared.length + undeclared.length === 0) say("proto: nothing breaks");
  else broken.push("proto");
  if (declared.length > 0) say(`proto: declared breaking changes (${declared.length})`);
  if (undeclared.length > 0) say(`proto: UNDECLARED breaking changes (${undeclared.length})`);
  for (const { path, message } of undeclared) say(`  ${path}: ${message}`);
  if (undeclared.length > 0) say("  Take them back, or make them in a new package.");
  return undeclared.length === 0;
}

/** Checks the version of a release. @returns false if it does not declare what breaks */
async function packages(folder: string): Promise<boolean> {
  const file = "package.json";
  const [{ version: before }, { version: after }] = [await read(folder, file), await read(ROOT, file)];
  if (broken.length === 0 || before === after || declaresBreak(before, after)) return true;
  const part = before.startsWith("0.") ? "minor" : "major";
  say(`${file}: from ${before} to ${after} does not declare what breaks in ${broken.join(", ")}`);
  say(`  Release it with a higher ${part} number.`);
  return false;
}

const baseline = await (asked === undefined ? findBaseline() : namedBaseline(asked));
if (baseline === undefined && asked !== undefined) {
  const next = (await isShallow())
    ? "This clone is shallow; `git fetch --unshallow --tags` brings the others."
    : "`git log --oneline` lists them, `git tag` the releases, and `git fetch` brings what is new.";
  say(`"${asked}" names no commit of this repository. ${next}`);
  process.exitCode = 1;
} else if (baseline === undefined) {
  const where = (await isShallow()) ? " in this shallow clone" : "";
  say(`Nothing to compare with: no tag, no other origin/main, no previous commit${where}.`);
} else {
  say(`Comparing the contracts with ${baseline.name} (${baseline.commit.slice(0, 10)}).`);
  const folder = await mkdtemp(join(tmpdir(), "gatepost-breaking-"));
  try {
    const files = await checkOut(baseline, folder);
    const results = [await proto(folder, files)];
    for (const file of files.filter((name) => /^openapi\/[^/]+\.yaml$/.test(name))) {
      results.push(await openapi(folder, file));
    }
    results.push(await packages(folder));
    if (results.includes(false)) process.exitCode = 1;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
