import { readdirSync, readFileSync } from "node:fs";
import { getPriority } from "node:os";
import type { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { HashingThreads } from "../../../src/auth/password-hashing/hashing-threads.ts";

const cheap = { memoryCost: 64, timeCost: 2, parallelism: 1 };

/** Of each thread of this process: its nice value (proc_pid_stat(5), field 19). */
function priorities(): readonly number[] {
  return readdirSync("/proc/self/task").map((thread) => {
    const stat = readFileSync(`/proc/self/task/${thread}/stat`, "utf8");
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[16]);
  });
}

test("a hash is verified by another thread", async () => {
  const [one, other] = [new HashingThreads(), new HashingThreads()];
  const hash = await one.hash("a secret", cheap);
  expect(hash).toMatch(/^\$argon2id\$v=19\$m=64,t=2,p=1\$/);
  expect(await other.verify(hash, "a secret")).toBe(true);
  expect(await other.verify(hash, "another")).toBe(false);
});

test("tasks at once have a thread each, and their own results", async () => {
  const threads = new HashingThreads();
  const secrets = Array.from({ length: 6 }, (_, index) => `secret ${index}`);
  const hashes = await Promise.all(secrets.map((secret) => threads.hash(secret, cheap)));
  const isRight = await Promise.all(
    secrets.map((secret, index) => threads.verify(hashes[index] ?? "", secret)),
  );
  expect(isRight).toEqual(secrets.map(() => true));
});

test("what is no hash is an error of its task, and the thread goes on", async () => {
  const threads = new HashingThreads();
  await expect(threads.verify("no hash", "a secret")).rejects.toThrow();
  expect(await threads.verify(await threads.hash("a secret", cheap), "a secret")).toBe(true);
});

test("what cannot be sent to a thread is an error of its task, and the thread goes on", async () => {
  const threads = new HashingThreads();
  await expect(threads.hash("a secret", { ...cheap, secret: (() => 0) as never })).rejects.toThrow();
  expect(await threads.verify(await threads.hash("a secret", cheap), "a secret")).toBe(true);
});

test("a thread that ends, busy or not, takes no task with it but its own", async () => {
  const started: Worker[] = [];
  const note = (worker: Worker) => started.push(worker);
  process.on("worker", note);
  onTestFinished(() => void process.off("worker", note));
  const threads = new HashingThreads();
  const hash = await threads.hash("a secret", cheap);
  const long = threads.hash("a secret", { ...cheap, memoryCost: 65_536, timeCost: 200 });
  const other = threads.verify(hash, "a secret");
  const rejected = expect(long).rejects.toThrow("A thread that hashes ended with 1");
  expect(await other).toBe(true);
  expect(started).toHaveLength(2);
  await Promise.all(started.map((worker) => worker.terminate()));
  await rejected;
  expect(await threads.verify(hash, "a secret")).toBe(true);
  expect(started).toHaveLength(3);
});

test("a thread keeps no listener of a task that is done, failed or not", async () => {
  const started: Worker[] = [];
  const note = (worker: Worker) => started.push(worker);
  process.on("worker", note);
  onTestFinished(() => void process.off("worker", note));
  const threads = new HashingThreads();
  const listeners = () =>
    started.map((worker) =>
      ["message", "messageerror", "error", "exit"].map((event) => worker.listenerCount(event)),
    );
  await threads.hash("a secret", cheap);
  const before = listeners();
  for (let n = 0; n < 20; n += 1) {
    await threads.hash("a secret", cheap);
    await expect(threads.verify("no hash", "a secret")).rejects.toThrow();
  }
  expect(before).toHaveLength(1);
  expect(listeners()).toEqual(before);
});

test.runIf(process.platform === "linux")("only threads that hash come after all else", async () => {
  const before = priorities();
  const low = (all: readonly number[]) => all.filter((priority) => priority === getPriority() + 5).length;
  await new HashingThreads().hash("a secret", cheap);
  expect(low(priorities())).toBe(low(before) + 1);
});
