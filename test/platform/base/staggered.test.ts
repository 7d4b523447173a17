import { setImmediate } from "node:timers/promises";
import { expect, it } from "vitest";
import { beginStaggered } from "../../../src/platform/base/staggered.ts";

/** Begins with so many. @returns how many had been begun with after each turn of the event loop, and their order */
async function begin(count: number) {
  const order: number[] = [];
  for (let place = 0; place < count; place += 1) beginStaggered(() => order.push(place));
  const after = [order.length];
  while (order.length < count) {
    await setImmediate();
    after.push(order.length);
  }
  await setImmediate();
  return { order, after };
}

it("few are begun with at once", async () => {
  expect(await begin(3)).toEqual({ order: [0, 1, 2], after: [3] });
});

it("of many, 64 are begun with in each turn of the event loop, in order of arrival", async () => {
  const { order, after } = await begin(200);
  expect(after).toEqual([64, 128, 192, 200]);
  expect(order).toEqual(Array.from({ length: 200 }, (_, place) => place));
  expect((await begin(64)).after).toEqual([64]);
});

it("what arrives while others wait comes after them", async () => {
  const order: string[] = [];
  for (let place = 0; place < 130; place += 1) beginStaggered(() => order.push("early"));
  await setImmediate();
  beginStaggered(() => order.push("late"));
  expect(order).toHaveLength(128);
  await setImmediate();
  expect(order.slice(128)).toEqual(["early", "early", "late"]);
});
