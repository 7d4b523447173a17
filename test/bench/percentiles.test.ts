import { expect, test } from "vitest";
import { median, percentiles, quantile } from "./percentiles.ts";

test("the median is the middle one, or the mean of the two middle ones, whatever their order", () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([10, 1, 3, 2])).toBe(2.5);
  expect(median([4, 4])).toBe(4);
  expect(percentiles([10, 1, 3, 2]).p50).toBe(2.5);
});

test("a quantile lies between two values in proportion", () => {
  const values = [50, 10, 40, 20, 30, 60];
  expect([0, 0.2, 0.25, 0.5, 1].map((share) => quantile(values, share))).toEqual([10, 20, 22.5, 35, 60]);
});

test("less than one in a hundred exceeds the 99th percentile, one in a thousand the 99.9th", () => {
  const upTo = (count: number) => Array.from({ length: count }, (_, n) => n + 1);
  expect(percentiles(upTo(1_000)).p99).toBe(991);
  expect(percentiles(upTo(100)).p99).toBe(100);
  expect(percentiles(upTo(1_000)).p999).toBe(1_000);
  expect(percentiles(upTo(10_000)).p999).toBe(9_991);
  expect(percentiles([7])).toEqual({ p50: 7, p99: 7, p999: 7 });
});

test("what ended never is the slowest", () => {
  expect(median([1, 2, Infinity])).toBe(2);
  expect(median([1, Infinity, Infinity])).toBe(Infinity);
});

test("of no values nothing meets an aim", () => {
  for (const value of [median([]), quantile([], 0.25), percentiles([]).p50, percentiles([]).p99])
    expect(value <= 50 || value >= 50).toBe(false);
});
