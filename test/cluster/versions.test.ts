import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { commitBeforeMigrations } from "./versions.ts";

interface Commit {
  readonly file: string;
  readonly text: string;
}

/** A repository with these commits. @returns its folder and their ids */
function repository(...made: readonly Commit[]): { folder: string; commits: string[] } {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-repository-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const git = (...args: string[]) => {
    const who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"];
    return execFileSync("git", ["-C", folder, ...who, ...args], { encoding: "utf8" }).trim();
  };
  git("init", "--quiet");
  const commits = made.map(({ file, text }) => {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), text);
    git("add", ".");
    git("commit", "--quiet", "--message", file);
    return git("rev-parse", "HEAD");
  });
  return { folder, commits };
}

/** A commit whose migrations of the service were generated at these times. */
const journal = (service: "auth" | "push", ...times: readonly number[]): Commit => ({
  file: `drizzle/${service}/meta/_journal.json`,
  text: JSON.stringify({ entries: times.map((when, idx) => ({ idx, when })) }),
});
const other = (file: string): Commit => ({ file, text: "" });
const begun = [journal("auth", 5), journal("push", 6)];

test("an upgrade begins at the newest commit with fewer migrations", async () => {
  const { folder, commits } = repository(...begun, other("a.ts"), journal("push", 6, 7), other("b.ts"));
  expect(await commitBeforeMigrations(folder)).toBe(commits[2]);
});

test("a version has no predecessor until its next migration", async () => {
  const { folder } = repository(...begun, other("a.ts"));
  expect(await commitBeforeMigrations(folder)).toBeUndefined();
  const { folder: anew } = repository(...begun, journal("push", 8), other("a.ts"));
  expect(await commitBeforeMigrations(anew)).toBeUndefined();
});

test("nor has one without migrations, or with nothing before them", async () => {
  expect(await commitBeforeMigrations(repository(other("a.ts")).folder)).toBeUndefined();
  expect(await commitBeforeMigrations(repository(journal("auth", 5)).folder)).toBeUndefined();
});
