/** Turns: one at a time for a key, in order, and nobody waits for ever. */
import { setTimeout } from "node:timers/promises";
import { expect, it } from "vitest";
import { Turns } from "../../../src/platform/base/turns.ts";

const refuse = () => new Error("refused");

it("does work on one key one after the other, in order, and on another at the same time", async () => {
  const turns = new Turns(10_000, refuse);
  const done: string[] = [];
  const first = Promise.withResolvers<void>();
  const same = [0, 1, 2].map((index) =>
    turns.take("a", async () => {
      if (index === 0) await first.promise;
      done.push(`a${index}`);
    }),
  );
  await turns.take("b", async () => void done.push("b"));
  expect(done).toEqual(["b"]);
  first.resolve();
  await Promise.all(same);
  expect(done).toEqual(["b", "a0", "a1", "a2"]);
});

it("goes on after work that failed", async () => {
  const turns = new Turns(10_000, refuse);
  const failed = turns.take("a", () => Promise.reject(new Error("broken")));
  const next = turns.take("a", async () => "done");
  await expect(failed).rejects.toThrow("broken");
  expect(await next).toBe("done");
});

it("refuses what waits for too long, and never begins it", async () => {
  const turns = new Turns(200, refuse);
  const release = Promise.withResolvers<void>();
  const first = turns.take("a", () => release.promise);
  let isBegun = false;
  const late = turns.take("a", async () => {
    isBegun = true;
  });
  await expect(late).rejects.toMatchObject({ message: "refused" });
  release.resolve();
  await first;
  expect(await turns.take("a", async () => "next")).toBe("next");
  await setTimeout(10);
  expect(isBegun).toBe(false);
});

it("refuses at once where too many wait", async () => {
  const turns = new Turns(10_000, refuse);
  const release = Promise.withResolvers<void>();
  const all = Array.from({ length: 150 }, () =>
    turns
      .take("a", () => release.promise)
      .then(
        () => "done",
        () => "refused",
      ),
  );
  release.resolve();
  const outcomes = await Promise.all(all);
  expect(outcomes.filter((outcome) => outcome === "done")).toHaveLength(101);
});
