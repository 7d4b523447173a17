/** Versions of this program: the one in this folder, and others of its history in folders of their own. */
import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { outputOf, run } from "../../scripts/command.ts";

const git = (...args: string[]) => outputOf("git", ...args);

const journals = "drizzle/*/meta/_journal.json";

/**
 * The newest commit with fewer migrations than the newest commit has: what runs where somebody upgrades next.
 * Undefined if there is none whose migrations this version continues.
 * @param folder of the repository; this one unless given
 */
export async function commitBeforeMigrations(folder = "."): Promise<string | undefined> {
  const found = await git("-C", folder, "log", "-1", "--format=%H %P", "--", journals);
  const [newest, before] = found.split(" ");
  if (!newest || !before) return undefined;
  const isContinued = (await firstMigrations(folder, before)) === (await firstMigrations(folder, newest));
  return isContinued ? before : undefined;
}

/** The first migration of each service at a commit, as text. */
async function firstMigrations(folder: string, commit: string): Promise<string> {
  const files = await git("-C", folder, "ls-tree", "-r", "--name-only", commit, "drizzle");
  const journals = files.split("\n").filter((file) => file.endsWith("_journal.json"));
  const firsts = journals.map(async (file) => {
    const { entries }: { entries: unknown[] } = JSON.parse(
      await git("-C", folder, "show", `${commit}:${file}`),
    );
    return { file, first: entries[0] };
  });
  return JSON.stringify(await Promise.all(firsts));
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
