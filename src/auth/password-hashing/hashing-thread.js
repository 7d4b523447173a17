/**
 * The program of a thread that hashes: takes one task after the other, and sends back what came of each. JavaScript, as
 * src/start.js is: as TypeScript, each thread would load Node's TypeScript parser.
 *
 * A hash takes all of a core for some 10 ms. So on Linux, where each thread has a priority of its own, what is short
 * comes before it: the signature of a token, another process, or the database on the same machine.
 */
import { readlinkSync } from "node:fs";
import { getPriority, setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { hashSync, verifySync } from "@node-rs/argon2";

/** Added to the nice value of the process: where all else takes every core, a hash still gets a third of what an equal would (sched(7)). */
const niceness = 5;

lowerPriority();
parentPort?.on("message", (task) => parentPort?.postMessage(resultOf(task)));

/** @param {{ secret: string, hash?: string, options?: import("@node-rs/argon2").Options }} task */
function resultOf({ secret, hash, options }) {
  try {
    return { value: hash === undefined ? hashSync(secret, options) : verifySync(hash, secret) };
  } catch (error) {
    return { error };
  }
}

function lowerPriority() {
  if (process.platform !== "linux") return;
  try {
    const thread = Number(readlinkSync("/proc/thread-self").split("/").at(-1));
    setPriority(thread, Math.min(getPriority(thread) + niceness, 19));
  } catch {
    // Without /proc, or where it is forbidden, the thread hashes as well, only not last.
  }
}
