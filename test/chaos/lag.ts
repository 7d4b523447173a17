/**
 * How late the machine is. Everything shares it: where the fakes or the database take long to answer, they also note
 * late what has happened, and processes store late what they were answered. What is allowed is longer by so much.
 */
import { setTimeout as pause } from "node:timers/promises";
import type { World } from "./world.ts";

/** Milliseconds that the machine was late around this time, which is in milliseconds since the epoch. */
export type LagAt = (at: number) => number;

interface LagWatch {
  readonly at: LagAt;
  /** Milliseconds. */
  longest(): number;
  end(): Promise<void>;
}

const everyMs = 200;
/** Milliseconds around a time in which an answer that is late counts. */
const aroundMs = 2_000;

export function watchLag({ fakes, admin }: Pick<World, "fakes" | "admin">): LagWatch {
  const seen: { readonly from: number; readonly to: number }[] = [];
  let isOver = false;

  async function ask(what: () => Promise<unknown>): Promise<void> {
    while (!isOver) {
      const from = Date.now();
      await what().catch(() => undefined);
      seen.push({ from, to: Date.now() });
      await pause(everyMs);
    }
  }

  const asking = [ask(() => fakes.summary()), ask(async () => admin`select 1`)];
  const longestOf = (some: typeof seen) =>
    some.reduce((longest, { from, to }) => Math.max(longest, to - from), 0);
  return {
    at: (at) => longestOf(seen.filter(({ from, to }) => from <= at + aroundMs && to >= at - aroundMs)),
    longest: () => longestOf(seen),
    async end() {
      isOver = true;
      await Promise.all(asking);
    },
  };
}
