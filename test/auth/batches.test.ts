/** The pace of work in batches that nobody waits for. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { inBatches } from "../../src/auth/batches.ts";
import type { Executor } from "../../src/platform/database/database.ts";
import { stopwatch } from "../support/stopwatch.ts";

const batchMs = 60;

/** Full batches of two rows, and then one that is not full. @returns the milliseconds from each one's end to the next */
async function rests(full: number, options: { readonly rests?: boolean }): Promise<number[]> {
  const between: number[] = [];
  let batches = 0;
  let endedAt: number | undefined;
  const execute = async () => {
    if (endedAt !== undefined) between.push(performance.now() - endedAt);
    await setTimeout(batchMs);
    batches += 1;
    endedAt = performance.now();
    return batches <= full ? [{ one: 1 }, { one: 1 }] : [];
  };
  const db: Executor = Object.assign(Object.create(null), { execute });
  expect(await inBatches(db, sql`select 1`, { size: 2, ...options })).toBe(true);
  return between;
}

test("it rests after each full batch for as long as the batch took", async () => {
  const between = await rests(3, { rests: true });
  expect(between).toHaveLength(3);
  expect(Math.min(...between)).toBeGreaterThanOrEqual(batchMs - 5);
});

test("other work does not rest", async () => {
  expect(Math.min(...(await rests(3, {})))).toBeLessThan(batchMs / 2);
});

test("a rest ends when the process stops", async () => {
  const stopping = new AbortController();
  const execute = async () => {
    await setTimeout(1_000);
    stopping.abort();
    return [{ one: 1 }];
  };
  const db: Executor = Object.assign(Object.create(null), { execute });
  const took = stopwatch();
  expect(await inBatches(db, sql`select 1`, { size: 1, rests: true, stopping: stopping.signal })).toBe(false);
  expect(took()).toBeLessThan(1_800);
});
