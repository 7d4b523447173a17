import { expect, test } from "vitest";
import { WorkLimit } from "../../src/auth/work-limit.ts";

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

test("so much work is admitted, and the rest refused before it begins", async () => {
  const work = new WorkLimit(2, () => new Error("too much"));
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
