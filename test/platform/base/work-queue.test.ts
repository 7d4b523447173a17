import { expect, test } from "vitest";
import { WorkQueue } from "../../../src/platform/base/work-queue.ts";

/** Pieces of work that end when the test says so, and the order in which they began. */
function pieces() {
  const begun: number[] = [];
  const ends: PromiseWithResolvers<number>[] = [];
  return {
    begun,
    piece: (n: number) => () => {
      begun.push(n);
      const end = Promise.withResolvers<number>();
      ends[n] = end;
      return end.promise;
    },
    end: (n: number) => ends[n]?.resolve(n),
    fail: (n: number) => ends[n]?.reject(new Error(`piece ${n} failed`)),
  };
}
const turn = () => new Promise((resolve) => setImmediate(resolve));

test("so much work runs at a time, first come first served", async () => {
  const work = new WorkQueue(2);
  const { begun, piece, end, fail } = pieces();
  const running = [0, 1, 2, 3].map((n) => work.run(piece(n)));
  expect(begun).toEqual([0, 1]);
  end(1);
  await turn();
  expect(begun).toEqual([0, 1, 2]);
  fail(0);
  await expect(running[0]).rejects.toThrow("piece 0 failed");
  await turn();
  expect(begun).toEqual([0, 1, 2, 3]);
  end(2);
  end(3);
  expect(await Promise.all(running.slice(1))).toEqual([1, 2, 3]);
  const last = work.run(piece(5));
  end(5);
  expect(await last).toBe(5);
});

test("work whose turn does not come within its time is refused and not begun, and the others keep their order", async () => {
  const work = new WorkQueue(1);
  const { begun, piece, end } = pieces();
  const within = (maxWaitMs: number) => ({ maxWaitMs, refuse: () => new Error("too late") });
  const [first, hasty] = [work.run(piece(0), within(1)), work.run(piece(1), within(1))];
  const patient = work.run(piece(2));
  await expect(hasty).rejects.toThrow("too late");
  end(0);
  expect(await first).toBe(0);
  await turn();
  expect(begun).toEqual([0, 2]);
  const waits = work.run(piece(3), within(60_000));
  end(2);
  expect(await patient).toBe(2);
  await turn();
  end(3);
  expect(await waits).toBe(3);
  const next = work.run(piece(4));
  end(4);
  expect(await next).toBe(4);
  expect(begun).toEqual([0, 2, 3, 4]);
});
