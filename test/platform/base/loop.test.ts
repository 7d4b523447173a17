/** Loops: one round at a time, stopped at once where they pause, and never ended by a failure. */
import { setTimeout } from "node:timers/promises";
import { describe, expect, it, vi } from "vitest";
import { every, pause, repeat, startLoop } from "../../../src/platform/base/loop.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { waitFor } from "../../support/wait-for.ts";

const unreachable = () => expect.unreachable("a round failed");

describe("every", () => {
  it("does one round at a time, the first after an interval", async () => {
    let active = 0;
    const most: number[] = [];
    const work = vi.fn(async () => {
      active += 1;
      most.push(active);
      await setTimeout(20);
      active -= 1;
    });
    const loop = every(5, work, unreachable);
    expect(work).not.toHaveBeenCalled();
    await waitFor(() => expect(most.length).toBeGreaterThan(2));
    await loop.stop();
    expect(new Set(most)).toEqual(new Set([1]));
  });

  it("reports a round that failed, and continues", async () => {
    const failed = vi.fn();
    const work = vi.fn<() => Promise<void>>().mockRejectedValueOnce("broken").mockResolvedValue();
    const loop = every(1, work, failed);
    await waitFor(() => expect(work.mock.calls.length).toBeGreaterThan(2));
    await loop.stop();
    expect(failed.mock.calls).toEqual([["broken"]]);
  });

  it("stops at once where it pauses, without another round", async () => {
    const work = vi.fn(async () => undefined);
    const loop = every(60_000, work, unreachable);
    const before = stopwatch();
    await loop.stop();
    expect(before()).toBeLessThan(1_000);
    expect(work).not.toHaveBeenCalled();
  });

  it("aborts the signal of the round in progress, and waits for it", async () => {
    const ended = vi.fn();
    const begun = Promise.withResolvers<void>();
    const loop = every(
      1,
      async (stopping) => {
        begun.resolve();
        await pause(60_000, stopping);
        await setTimeout(20);
        ended();
      },
      unreachable,
    );
    await begun.promise;
    await loop.stop();
    expect(ended).toHaveBeenCalledOnce();
  });
});

it("a loop begins at once, and each round returns the pause before the next", async () => {
  const pauses = [0, 0, 60_000];
  const round = vi.fn(async () => pauses.shift() ?? expect.unreachable());
  const loop = startLoop(round);
  expect(round).toHaveBeenCalledOnce();
  await waitFor(() => expect(round).toHaveBeenCalledTimes(3));
  await loop.stop();
  expect(round).toHaveBeenCalledTimes(3);
});

it("does nothing for a signal that is aborted already", async () => {
  const round = vi.fn(async () => 0);
  await repeat(AbortSignal.abort(), round);
  expect(round).not.toHaveBeenCalled();
});
