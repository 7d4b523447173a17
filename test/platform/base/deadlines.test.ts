/** Deadlines: no caller waits for ever, and one timer serves all. */
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { Deadlines, withRequestTimeout, withTimeout } from "../../../src/platform/base/deadlines.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const after = (milliseconds: number) => ({ deadline: performance.now() + milliseconds, expire: vi.fn() });

it("expires each after its deadline, within a tenth of a second, and never what was released", async () => {
  const deadlines = new Deadlines();
  const first = after(500);
  deadlines.take(first);
  await vi.advanceTimersByTimeAsync(50);
  const [second, done] = [after(500), after(500)];
  deadlines.take(second);
  deadlines.release(deadlines.take(done), done);
  expect(vi.getTimerCount()).toBe(1);
  await vi.advanceTimersByTimeAsync(451);
  expect(first.expire).toHaveBeenCalledOnce();
  expect(second.expire).not.toHaveBeenCalled();
  await vi.advanceTimersByTimeAsync(101);
  expect(second.expire).toHaveBeenCalledOnce();
  expect(done.expire).not.toHaveBeenCalled();
  expect(vi.getTimerCount()).toBe(0);
});

it("expires a short one that comes after a long one", async () => {
  const deadlines = new Deadlines();
  const [long, short] = [after(10_000), after(500)];
  deadlines.take(long);
  deadlines.take(short);
  await vi.advanceTimersByTimeAsync(601);
  expect(short.expire).toHaveBeenCalledOnce();
  expect(long.expire).not.toHaveBeenCalled();
});

it("expires what never ends once, and forgets it", async () => {
  const deadlines = new Deadlines();
  const stuck = Array.from({ length: 100 }, () => after(500));
  for (const one of stuck) deadlines.take(one);
  // Each later one would be a further pass over those that are stuck.
  for (let later = 0; later < 20; later += 1) {
    deadlines.take(after(500));
    await vi.advanceTimersByTimeAsync(100);
  }
  expect(stuck.map(({ expire }) => expire.mock.calls.length)).toEqual(stuck.map(() => 1));
  await vi.advanceTimersByTimeAsync(1_000);
  expect([...deadlines]).toEqual([]);
});

it("does not release what took the place of one that has expired", async () => {
  const deadlines = new Deadlines();
  const expired = after(500);
  const slot = deadlines.take(expired);
  await vi.advanceTimersByTimeAsync(601);
  const next = after(500);
  expect(deadlines.take(next)).toBe(slot);
  deadlines.release(slot, expired);
  expect([...deadlines]).toEqual([next]);
});

it("holds what has no deadline, without a timer", () => {
  const deadlines = new Deadlines();
  const endless = { deadline: Number.POSITIVE_INFINITY, expire: vi.fn() };
  deadlines.take(endless);
  expect([...deadlines]).toEqual([endless]);
  expect(vi.getTimerCount()).toBe(0);
});

it("work that hangs is unavailable after ten seconds", async () => {
  const hung = withRequestTimeout(new Promise(() => undefined));
  const failed = expect(hung).rejects.toMatchObject({ kind: { code: "unavailable" } });
  await vi.advanceTimersByTimeAsync(10_001);
  await failed;
});

it("work that ends is what it comes to", async () => {
  expect(await withRequestTimeout(Promise.resolve("done"))).toBe("done");
  await expect(withRequestTimeout(Promise.reject(new Error("broken")))).rejects.toThrow("broken");
});

it("work that takes longer than a timeout comes to what that says, or throws", async () => {
  const hung = new Promise<string>(() => undefined);
  const late = withTimeout(hung, 1_000, () => false);
  const thrown = withTimeout(hung, 1_000, () => {
    throw new Error("too late");
  });
  const failed = expect(thrown).rejects.toThrow("too late");
  await vi.advanceTimersByTimeAsync(1_001);
  expect(await late).toBe(false);
  await failed;
});
