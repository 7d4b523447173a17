/**
 * Keeps a directory to one process: the embedded database would be damaged by two at once, and does not
 * notice. The lock is a file beside the directory that names its owner; one whose owner has died is void.
 */
import { randomUUID } from "node:crypto";
import { linkSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { codeOf } from "../base/error-code.ts";

/** A directory that another process uses. */
export class DirectoryInUseError extends Error {
  override readonly name = "DirectoryInUseError";

  constructor(directory: string, lock: string, owner: number) {
    super(
      `${directory} is in use by process ${owner}, and only one process at a time can use it. Stop that one, ` +
        `or choose another DATA_DIR. If that is another program by now, remove ${lock}.`,
    );
  }
}

/** Locks that this process holds. */
const held = new Set<string>();

/**
 * Takes the directory for this process until it is released, or the process ends.
 *
 * @param directory the one above it must exist
 * @returns releases it
 * @throws DirectoryInUseError
 */
export function lockDirectory(directory: string): () => void {
  const lock = `${resolve(directory)}.lock`;
  while (!create(lock)) {
    const owner = read(lock);
    if (owner === undefined) continue;
    if (isAlive(owner, lock) || !putAside(lock, owner)) throw new DirectoryInUseError(directory, lock, owner);
  }
  held.add(lock);
  const release = () => {
    if (held.delete(lock)) rmSync(lock, { force: true });
    process.removeListener("exit", release);
  };
  process.once("exit", release);
  return release;
}

/** Creates the lock with its content, in one step. @returns whether it was not there */
function create(lock: string): boolean {
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

/** Its owner; undefined if it is gone. */
function read(lock: string): number | undefined {
  try {
    return Number(readFileSync(lock, "utf8"));
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
}

function isAlive(owner: number, lock: string): boolean {
  // In a container every process may get the same id as the one before it.
  if (owner === process.pid) return held.has(lock);
  if (!Number.isInteger(owner) || owner <= 0) return false;
  try {
    process.kill(owner, 0);
    return true;
  } catch (error) {
    return codeOf(error) === "EPERM";
  }
}

/** Removes a void lock. @returns false if somebody else has done so and holds it now */
function putAside(lock: string, owner: number): boolean {
  const aside = `${lock}.${randomUUID()}`;
  try {
    renameSync(lock, aside);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return true;
    throw error;
  }
  const isVoid = Object.is(read(aside), owner);
  if (!isVoid) linkSync(aside, lock);
  rmSync(aside);
  return isVoid;
}
