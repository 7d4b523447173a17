/**
 * The program of a thread that hashes: takes one task after the other, and sends back what came of each. JavaScript, as
 * src/start.js is: as TypeScript, each thread would load Node's TypeScript parser.
 *
 * A hash takes all of a core for some 10 ms, and nobody waits for one as for an introspection. So on Linux, where a
 * thread has a priority of its own, what is short comes before it: a second process on the machine, the database, or
 * the signature of a token need not wait until the system takes the core away from a hash.
 */
import { readlinkSync } from "node:fs";
import { constants, setPriority } from "node:os";
import { parentPort } from "node:worker_threads";
import { hashSync, verifySync } from "@node-rs/argon2";

lowerPriority();
parentPort?.on("message", (task) => parentPort?.postMessage(resultOf(task)));

/** @param {import("./hashing-threads.ts").Task} task */
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
    setPriority(thread, constants.priority.PRIORITY_BELOW_NORMAL);
  } catch {
    // Without /proc, or where it is forbidden, the thread hashes as well, only not last.
  }
}
