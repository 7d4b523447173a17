/** The threads that hash, which are started when they are needed, and kept. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";
import type { Options } from "@node-rs/argon2";

/** Hashes a secret or, with a hash, tells whether it is that of the secret. */
interface Task {
  readonly secret: string;
  /** As a PHC string. */
  readonly hash?: string;
  readonly options?: Options;
}

type Result = { readonly value: string | boolean } | { readonly error: unknown };

/** The program of a thread, and how much of V8's memory it may take: its texts are short. */
const program = new URL("./hashing-thread.js", import.meta.url);
const resourceLimits = { maxYoungGenerationSizeMb: 2, maxOldGenerationSizeMb: 16 };

/** A thread has one task at a time; there are as many as there ever were tasks at once. */
export class HashingThreads {
  #free: Worker[] = [];

  /** @returns a hash as a PHC string */
  async hash(secret: string, options: Options): Promise<string> {
    return String(await this.#do({ secret, options }));
  }

  /** @returns whether the hash is that of the secret */
  async verify(hash: string, secret: string): Promise<boolean> {
    return (await this.#do({ secret, hash })) === true;
  }

  async #do(task: Task): Promise<string | boolean> {
    const thread = this.#free.pop() ?? this.#start();
    // One that has nothing to do does not keep the process from ending.
    thread.ref();
    const result = await resultOf(thread, task);
    thread.unref();
    this.#free.push(thread);
    if ("error" in result) throw result.error;
    return result.value;
  }

  #start(): Worker {
    const thread = new Worker(program, { resourceLimits });
    // The task that it has is rejected with what it failed of, and without one nothing is lost.
    thread.on("error", () => undefined);
    thread.once("exit", () => {
      this.#free = this.#free.filter((other) => other !== thread);
    });
    return thread;
  }
}

/** Rejects if the thread fails; then it is gone. */
async function resultOf(thread: Worker, task: Task): Promise<Result> {
  const { promise: ended, reject } = Promise.withResolvers<never>();
  const end = (code: number) => reject(new Error(`A thread that hashes ended with ${code}`));
  thread.once("exit", end);
  try {
    thread.postMessage(task);
    // Also rejects with what the thread failed of.
    const [result] = await Promise.race([once(thread, "message"), ended]);
    return result;
  } finally {
    thread.off("exit", end);
  }
}
