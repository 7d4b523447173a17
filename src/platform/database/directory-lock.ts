/**
 * Lets one process at a time use a directory, by a file beside it with the owner's process id; stale once that ended.
 */
import { randomUUID } from "node:crypto";
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { codeOf } from "../base/error-code.ts";

/** Another process uses the directory. */
export class DirectoryInUseError extends Error {
  override readonly name = "DirectoryInUseError";

  constructor(directory: string, lock: string, owner: number) {
    super(
      `${directory} is in use by process ${owner}, and only one process at a time can use it. Stop that one, or set ` +
        `DATA_DIR to a folder of this one's own. If that is another program by now, remove ${lock}.`,
    );
  }
}

const held = new Set<string>();

/**
 * Locks the directory, whose parent must exist, for this process, until it is released or the process ends.
 * @throws DirectoryInUseError
 */
export function lockDirectory(directory: string): () => void {
  const lock = `${resolve(directory)}.lock`;
  while (!createLock(lock)) {
    const owner = readOwner(lock);
    if (owner === undefined) continue;
    if (isAlive(owner, lock) || !removeStale(lock, owner))
      throw new DirectoryInUseError(directory, lock, owner);
  }
  held.add(lock);
  const release = () => {
    if (held.delete(lock)) rmSync(lock, { force: true });
    process.removeListener("exit", release);
  };
  process.once("exit", release);
  return release;
}

/** Creates the lock with its content, atomically. @returns false if the lock exists */
function createLock(lock: string): boolean {
  const mine = `${lock}.${randomUUID()}`;
  writeFileSync(mine, `${process.pid}\n`, { mode: 0o600 });
  try {
    linkSync(mine, lock);
    return true;
  } catch (error) {
    if (codeOf(error) === "EEXIST") return false;
    throw error;
  } finally {
    rmSync(mine, { force: true });
  }
}

/** The process id in a lock file; undefined if the file does not exist. */
function readOwner(lock: string): number | undefined {
  try {
    return Number(readFileSync(lock, "utf8"));
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function isAlive(owner: number, lock: string): boolean {
  // In a container a process may get the same id as the previous one.
  if (owner === process.pid) return held.has(lock);
  if (!Number.isInteger(owner) || owner <= 0) return false;
  try {
    process.kill(owner, 0);
    return true;
  } catch (error) {
    return codeOf(error) === "EPERM";
  }
}

/** Removes a stale lock. @returns false if another process has removed it and holds the lock now */
function removeStale(lock: string, owner: number): boolean {
  const aside = `${lock}.${randomUUID()}`;
  try {
    renameSync(lock, aside);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return true;
    throw error;
  }
  const isStale = Object.is(readOwner(aside), owner);
  if (!isStale) linkSync(aside, lock);
  rmSync(aside);
  return isStale;
}
