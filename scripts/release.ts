/**
 * `npm run release -- <version>`: moves all versions to that of a release: of the packages, with the ranges by which they
 * need each other, of the server, of its chart and of its image there; and dates it in CHANGELOG.md. It commits nothing,
 * and says what comes next. Where it cannot do all of it, it changes nothing.
 *
 *   npm run release -- --check <tag> <URL of the repository>
 *
 * looks whether they are those of a tag on main, and whether the packages name that repository, without which npm
 * refuses their provenance: before a workflow publishes them.
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readArguments } from "../src/command.ts";
import { outputOf, ROOT, run, say, usageIn } from "./command.ts";

const { values, positionals } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { check: { type: "boolean" } },
  operands: [1, 2],
});

/** Why nothing was changed. */
class Refused extends Error {}

const packages = globSync("packages/*/package.json", { cwd: ROOT }).sort();
const changelog = "CHANGELOG.md";
const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const write = (file: string, text: string) => writeFileSync(join(ROOT, file), text);
const manifest = (file: string) => JSON.parse(read(file));
const dependencyKinds = ["dependencies", "peerDependencies", "optionalDependencies"];

/** Every place that states the version, beside the manifests: its file, and how it stands there. */
const places: readonly (readonly [file: string, version: RegExp])[] = [
  ["deploy/helm/gatepost/Chart.yaml", /(?<=^version: )\S+$/gm],
  ["deploy/helm/gatepost/Chart.yaml", /(?<=^appVersion: )\S+$/gm],
  ["deploy/kubernetes/gatepost.yaml", /(?<=^ +image: gatepost:)\S+$/gm],
];
const manifests = ["package.json", ...packages];
/** All that a move changes. */
const moved = [...manifests, "package-lock.json", changelog, ...places.map(([file]) => file)];

/** The versions that are stated, by place. @throws if a place states none */
function statedVersions(): Record<string, string> {
  const stated: Record<string, string> = {};
  for (const file of ["package-lock.json", ...manifests]) {
    const content = manifest(file);
    stated[file] = content.version;
    for (const kind of dependencyKinds)
      for (const [name, range] of Object.entries<string>(content[kind] ?? {}))
        if (name.startsWith("@gatepost/")) stated[`${file}, ${name}`] = range;
  }
  for (const [file, place] of places) {
    const found = read(file).match(place);
    if (!found) throw new Refused(`${file} has no version at ${place}: mend the places of this script`);
    for (const [index, version] of found.entries()) stated[`${file}, ${place}, ${index + 1}`] = version;
  }
  return stated;
}

/** Whether a version, as numbers with dots, is below another. */
function isBelow(version: string, other: string): boolean {
  const order = version.localeCompare(other, "en", { numeric: true });
  return order < 0;
}

async function refuseUnlessReady(version: string): Promise<void> {
  const current: string = manifest("package.json").version;
  if (!/^(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}$/.test(version))
    throw new Refused(`${version} is no version: write 1.2.3`);
  if (isBelow(version, current))
    throw new Refused(`${version} is below ${current}, which is the version now`);
  if (await outputOf("git", "tag", "--list", `v${version}`))
    throw new Refused(`There is a tag v${version} already`);
  const changes = await outputOf("git", "status", "--porcelain");
  if (changes) throw new Refused(`There are changes that are not committed:\n${changes}`);
  const [newest = "no heading"] = /^## .+$/m.exec(read(changelog)) ?? [];
  if (newest !== `## ${version}, unreleased`)
    throw new Refused(
      `${changelog} begins with "${newest}": write below "## ${version}, unreleased" what the release changes`,
    );
  statedVersions();
}

async function move(version: string): Promise<void> {
  await refuseUnlessReady(version);
  try {
    await change(version);
  } catch (error) {
    // All of it was committed.
    await outputOf("git", "checkout", "--quiet", "--", ...moved);
    throw error;
  }
  say(`All versions are ${version}. Look at \`git diff\`; then, on main:

  npm run verify
  git commit --all --message "Release ${version}"
  git push origin main
  git tag --annotate v${version} --message "Release ${version}"    once .ci/run has passed there
  git push origin v${version}                                      which publishes the packages`);
}

async function change(version: string): Promise<void> {
  for (const file of manifests) {
    const content = manifest(file);
    content.version = version;
    for (const kind of dependencyKinds)
      for (const name of Object.keys(content[kind] ?? {}))
        if (name.startsWith("@gatepost/")) content[kind][name] = version;
    write(file, `${JSON.stringify(content, null, 2)}\n`);
  }
  const { ok, output } = await run("npm", ["install", "--package-lock-only", "--ignore-scripts"]);
  if (!ok)
    throw new Refused(
      `${output}\nnpm cannot renew the lock file: nothing is changed; mend that, and repeat this`,
    );
  for (const [file, place] of places) write(file, read(file).replaceAll(place, version));
  const today = new Date().toISOString().slice(0, 10);
  write(changelog, read(changelog).replace(`## ${version}, unreleased`, `## ${version}, ${today}`));
}

async function check(tag: string, repository: string): Promise<void> {
  const version = tag.replace(/^v/, "");
  const others = Object.entries(statedVersions()).filter(([, stated]) => stated !== version);
  if (others.length > 0)
    throw new Refused(
      `Not ${version}: ${others.map(([place, stated]) => `${place} (${stated})`).join("; ")}`,
    );
  if (!read(changelog).includes(`\n## ${version}, 2`))
    throw new Refused(`${changelog} has no date of ${version}`);
  for (const file of packages) {
    const { url } = manifest(file).repository;
    if (url !== `git+${repository}.git`)
      throw new Refused(`${file} names the repository ${url}, not ${repository}`);
  }
  const { ok } = await run("git", ["merge-base", "--is-ancestor", "HEAD", "origin/main"]);
  if (!ok) throw new Refused(`${tag} is not on main`);
  say(`All versions are ${version}, on main of ${repository}.`);
}

const [first = "", repository] = positionals;
try {
  if (values.check !== true && repository === undefined) await move(first);
  else if (values.check === true && repository !== undefined) await check(first, repository);
  else throw new Refused("Give a version, or --check with a tag and the URL of the repository");
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  say(error.message);
  process.exitCode = 1;
}
