import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { commitBeforeMigrations } from "./versions.ts";

/** A repository with a commit for each of these files. @returns its folder and the commits */
function repository(files: readonly string[]): { folder: string; commits: string[] } {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-repository-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const git = (...args: string[]) => {
    const who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"];
    return execFileSync("git", ["-C", folder, ...who, ...args], { encoding: "utf8" }).trim();
  };
  git("init", "--quiet");
  const commits = files.map((file, number) => {
    mkdirSync(dirname(join(folder, file)), { recursive: true });
    writeFileSync(join(folder, file), String(number));
    git("add", ".");
    git("commit", "--quiet", "--message", file);
    return git("rev-parse", "HEAD");
  });
  return { folder, commits };
}

test("an upgrade begins at the newest commit with fewer migrations", async () => {
  const [auth, push] = ["drizzle/auth/meta/_journal.json", "drizzle/push/meta/_journal.json"];
  const { folder, commits } = repository([auth, push, "a.ts", push, "b.ts", "drizzle/README.md"]);
  expect(await commitBeforeMigrations(folder)).toBe(commits[2]);
});

test("a history without migrations is said to have none", async () => {
  const { folder } = repository(["a.ts"]);
  await expect(commitBeforeMigrations(folder)).rejects.toThrow("has no migrations; name a commit");
});
