import { setImmediate } from "node:timers/promises";
import { expect, it } from "vitest";
import type { Priority } from "../../../src/platform/base/priority.ts";
import { Starts } from "../../../src/platform/door/starts.ts";

/** Starts so many. @returns their order, and how many had been started after each turn of the event loop */
async function start(starts: Starts, count: number) {
  const order: number[] = [];
  for (let place = 0; place < count; place += 1) starts.add("normal", 0, () => order.push(place) > 0);
  const after = [order.length];
  while (order.length < count) {
    await setImmediate();
    after.push(order.length);
  }
  await setImmediate();
  return { order, after };
}

/** Fills a turn, so that what is added waits. */
function fill(starts: Starts): void {
  for (let place = 0; place < 64; place += 1) starts.add("high", 0, () => true);
}

it("few are started at once", async () => {
  expect(await start(new Starts(100), 3)).toEqual({ order: [0, 1, 2], after: [3] });
});

it("of many, 64 are started in each turn of the event loop, in order of arrival", async () => {
  const starts = new Starts(100);
  const { order, after } = await start(starts, 200);
  expect(after).toEqual([64, 128, 192, 200]);
  expect(order).toEqual(Array.from({ length: 200 }, (_, place) => place));
  expect((await start(starts, 64)).after).toEqual([64]);
});

it("what arrives while others wait comes after them", async () => {
  const starts = new Starts(100);
  const order: string[] = [];
  fill(starts);
  for (let place = 0; place < 66; place += 1) starts.add("high", 0, () => order.push("early") > 0);
  await setImmediate();
  starts.add("high", 0, () => order.push("late") > 0);
  expect(order).toHaveLength(64);
  await setImmediate();
  expect(order.slice(64)).toEqual(["early", "early", "late"]);
});

it("higher priorities come first, but for eight of each lower one in a turn", async () => {
  const starts = new Starts(100);
  const started: Record<Priority, number> = { high: 0, normal: 0, low: 0 };
  fill(starts);
  const add = (priority: Priority) =>
    starts.add(priority, 0, () => {
      started[priority] += 1;
      return true;
    });
  for (let place = 0; place < 60; place += 1) (["low", "normal", "high"] as const).forEach(add);
  await setImmediate();
  expect(started).toEqual({ high: 48, normal: 8, low: 8 });
  await setImmediate();
  expect(started).toEqual({ high: 60, normal: 52, low: 16 });
});

it("what turns out to be gone takes no place in a turn", async () => {
  const starts = new Starts(100);
  const started: string[] = [];
  fill(starts);
  for (let place = 0; place < 1_000; place += 1) starts.add("low", 0, () => false);
  starts.add("low", 0, () => started.push("one that waits") > 0);
  await setImmediate();
  expect(started).toEqual(["one that waits"]);
});

it("is late for a priority whose first has waited too long in two turns", async () => {
  const starts = new Starts(100);
  const begin = performance.now();
  fill(starts);
  for (let place = 0; place < 200; place += 1) starts.add("low", begin - 101, () => true);
  for (let place = 0; place < 200; place += 1) starts.add("high", begin + 60_000, () => true);
  const late: boolean[] = [];
  for (let turn = 0; turn < 8; turn += 1) {
    await setImmediate();
    late.push(starts.isLate("low"));
    expect(starts.isLate("high")).toBe(false);
  }
  expect(late[0]).toBe(false);
  expect(late.slice(1, 5)).toEqual([true, true, true, true]);
  expect(late.at(-1)).toBe(false);
});
