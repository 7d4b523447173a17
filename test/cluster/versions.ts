/** Versions of this program: the one in this folder, and others of its history in folders of their own. */
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { outputOf, run } from "../../scripts/command.ts";

const git = (...args: string[]) => outputOf("git", ...args);

/**
 * The newest commit with fewer migrations than the newest commit has: what runs where somebody upgrades next.
 * @param folder of the repository; this one unless given
 */
export async function commitBeforeMigrations(folder = "."): Promise<string> {
  const journals = "drizzle/*/meta/_journal.json";
  const newest = await git("-C", folder, "log", "-1", "--format=%H", "--", journals);
  if (newest === "") throw new Error("The history of this repository has no migrations; name a commit.");
  return git("-C", folder, "rev-parse", "--verify", `${newest}^`);
}

/** A checkout with its packages. */
export interface Version extends AsyncDisposable {
  readonly folder: string;
  /** Its short hash and subject. */
  readonly title: string;
}

/**
 * Checks a commit out. Packages are those of this folder where it has the same, and otherwise installed.
 * @param parent the folder that the checkout is made in
 */
export async function checkOut(commit: string, parent: string): Promise<Version> {
  const folder = join(parent, "version");
  mkdirSync(parent, { recursive: true });
  const title = await git("log", "-1", "--format=%h, “%s”", commit);
  await git("worktree", "add", "--quiet", "--detach", folder, commit);
  const remove = () => run("git", ["worktree", "remove", "--force", folder]);
  try {
    const { ok: hasOurPackages } = await run("git", ["diff", "--quiet", commit, "--", "package-lock.json"]);
    if (hasOurPackages) symlinkSync(join(process.cwd(), "node_modules"), join(folder, "node_modules"));
    else await outputOf("npm", "--prefix", folder, "ci", "--no-audit", "--no-fund");
  } catch (error) {
    await remove();
    throw error;
  }
  return {
    folder,
    title,
    async [Symbol.asyncDispose]() {
      await remove();
    },
  };
}
