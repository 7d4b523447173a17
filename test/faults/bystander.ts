/**
 * Somebody who has nothing to do with the trouble: asks for introspections, for tokens and for changes of an identity
 * at a steady rate, whatever has become of the earlier ones, and measures. It runs in a thread of its own, which other
 * work of this process does not hold up.
 */
import { Worker } from "node:worker_threads";
import type { Call } from "./http-client.ts";

/** What it asks for. */
export const kinds = ["introspection", "token", "change"] as const;
export type Kind = (typeof kinds)[number];

/** A request of it. */
export interface Sample {
  readonly kind: Kind;
  /** A moment by Date.now(): the threads share no other clock. */
  readonly startedAt: number;
  readonly ms: number;
  /** `right` is a response as it should be. */
  readonly outcome: "right" | "refused" | "wrong";
}

/** What the thread is given. */
export interface BystanderTask {
  readonly origin: string;
  readonly calls: Readonly<Record<Kind, Call>>;
  /** Milliseconds between two requests. */
  readonly everyMs: Readonly<Record<Kind, number>>;
}

export interface Bystander {
  /** What it has measured since it was asked last. */
  take(): Promise<readonly Sample[]>;
  stop(): Promise<void>;
}

export function startBystander(task: BystanderTask): Bystander {
  const worker = new Worker(new URL("bystander-thread.ts", import.meta.url), { workerData: task });
  return {
    take() {
      const { promise, resolve } = Promise.withResolvers<readonly Sample[]>();
      worker.once("message", resolve);
      worker.postMessage("take");
      return promise;
    },
    async stop() {
      await worker.terminate();
    },
  };
}

/** The 99th percentile in milliseconds; a refused request counts as one that never ended. */
export function p99(samples: readonly Sample[], kind: Kind): number {
  const sorted = samples
    .filter((sample) => sample.kind === kind)
    .map(({ ms, outcome }) => (outcome === "right" ? ms : Infinity))
    .sort((a, b) => a - b);
  return sorted[Math.ceil(sorted.length * 0.99) - 1] ?? 0;
}
