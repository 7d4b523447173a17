/** Deadlines: no caller waits for ever, and one timer serves all. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Deadlines, withTimeout } from "../../../src/platform/base/deadlines.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const after = (milliseconds: number) => ({ deadline: performance.now() + milliseconds, expire: vi.fn() });

it("expires each at its deadline, and what was put down never", async () => {
  const deadlines = new Deadlines();
  const first = after(100);
  deadlines.take(first);
  await vi.advanceTimersByTimeAsync(50);
  const [second, done] = [after(100), after(100)];
  deadlines.take(second);
  deadlines.release(deadlines.take(done));
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(51);
  expect(first.expire).toHaveBeenCalledOnce();
  expect(second.expire).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(50);
  expect(second.expire).toHaveBeenCalledOnce();
  expect(done.expire).not.toHaveBeenCalled();
  expect(vi.getTimerCount()).toBe(0);
});

it("holds what has no deadline, without a timer", () => {
  const deadlines = new Deadlines();
  const endless = { deadline: Number.POSITIVE_INFINITY, expire: vi.fn() };
  deadlines.take(endless);
  expect([...deadlines]).toEqual([endless]);
  expect(vi.getTimerCount()).toBe(0);
});

it("work that hangs is unavailable after ten seconds", async () => {
  const hung = withTimeout(new Promise(() => undefined));
  const failed = expect(hung).rejects.toMatchObject({ kind: { code: "unavailable" } });
  await vi.advanceTimersByTimeAsync(10_001);
  await failed;
});

it("work that ends is what it comes to", async () => {
  expect(await withTimeout(Promise.resolve("done"))).toBe("done");
  await expect(withTimeout(Promise.reject(new Error("broken")))).rejects.toThrow("broken");
});
