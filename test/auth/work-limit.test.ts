import { expect, test } from "vitest";
import { QueueingLimit } from "../../src/auth/work-limit.ts";

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

test("so many expensive parts run at a time, first come first served", async () => {
  const work = new QueueingLimit(2, 10, () => new Error("too much"));
  const { begun, piece, end, fail } = pieces();
  const running = [0, 1, 2, 3].map((n) => work.runPart(piece(n)));
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
  const last = work.runPart(piece(5));
  end(5);
  expect(await last).toBe(5);
});

test("so much work is admitted, and the rest refused before it begins", async () => {
  const work = new QueueingLimit(1, 2, () => new Error("too much"));
  const { begun, piece, end, fail } = pieces();
  const admitted = [0, 1].map((n) => work.run(piece(n)));
  await expect(work.run(piece(2))).rejects.toThrow("too much");
  expect(begun).toEqual([0, 1]);
  fail(0);
  await expect(admitted[0]).rejects.toThrow("piece 0 failed");
  const later = work.run(piece(3));
  expect(begun).toEqual([0, 1, 3]);
  end(1);
  end(3);
  expect(await Promise.all([admitted[1], later])).toEqual([1, 3]);
});

test("a part whose turn does not come within its time is refused and not begun, and the others keep their order", async () => {
  const work = new QueueingLimit(1, 10, () => new Error("too much"));
  const { begun, piece, end } = pieces();
  const within = (maxWaitMs: number) => ({ maxWaitMs, refuse: () => new Error("too late") });
  const [first, hasty] = [work.runPart(piece(0), within(1)), work.runPart(piece(1), within(1))];
  const patient = work.runPart(piece(2));
  await expect(hasty).rejects.toThrow("too late");
  end(0);
  expect(await first).toBe(0);
  await turn();
  expect(begun).toEqual([0, 2]);
  const waits = work.runPart(piece(3), within(60_000));
  end(2);
  expect(await patient).toBe(2);
  await turn();
  end(3);
  expect(await waits).toBe(3);
  const next = work.runPart(piece(4));
  end(4);
  expect(await next).toBe(4);
  expect(begun).toEqual([0, 2, 3, 4]);
});
