/**
 * The folder of a run that `tmpdir()` names in its workers, in memory where the machine has room there: tests copy
 * hundreds of small databases, of five hundred files each, which a disk takes ten times as long for as a processor does.
 */
import { chmodSync, mkdtempSync, readdirSync, rmSync, statfsSync } from "node:fs";
import { freemem, tmpdir } from "node:os";
import { join } from "node:path";

/** A file system in memory, on Linux. */
const memory = "/dev/shm";
const prefix = "gatepost-test-";
/** What a run may need at most, with room for others; it has needed 1.5 GB. */
const neededBytes = 6 * 2 ** 30;
/** Names the folder outside, for what is used again by later runs. */
const lastingVariable = "GATEPOST_TEST_LASTING";

/** Where files are that later runs find again. */
export function lastingDirectory(): string {
  return process.env[lastingVariable] ?? tmpdir();
}

/** For the process that starts the workers: they inherit it. Call it once. */
export function useRunDirectory(): void {
  process.env[lastingVariable] = tmpdir();
  if (process.env["TMPDIR"] !== undefined || !hasRoom()) return;
  sweep();
  const directory = mkdtempSync(join(memory, `${prefix}${process.pid}-`));
  // PostgreSQL runs as a user of its own where the tests run as root.
  chmodSync(directory, 0o755);
  process.env["TMPDIR"] = directory;
  process.once("exit", () => rmSync(directory, { recursive: true, force: true }));
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(memory);
    return bavail * bsize >= neededBytes && freemem() >= neededBytes;
  } catch {
    return false;
  }
}

/** Removes what runs have left that were killed. */
function sweep(): void {
  for (const name of readdirSync(memory)) {
    const pid = Number(/^gatepost-test-(\d+)-/.exec(name)?.[1]);
    if (pid > 0 && !isAlive(pid)) rmSync(join(memory, name), { recursive: true, force: true });
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
