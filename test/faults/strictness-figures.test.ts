/** When what was seen in a state of a standby proves nothing: each rule, where it holds and where it does not. */
import { expect, test } from "vitest";
import { patienceMs } from "./http-client.ts";
import { Figures, type LookKind, lookKinds } from "./strictness-figures.ts";

type Refused = Partial<Record<LookKind | "endings", number>>;

/** Acknowledged at the first request. */
const after = (ms: number, askedAt = 0) => ({ askedAt, refused: 0, ms, longestMs: ms, totalMs: ms });

/** Ten endings and ten looks of each kind. @param refused how many of them were, of endings at first */
function countTen(figures: Figures, refused: Refused, isWithin: boolean): void {
  for (let n = 0; n < 10; n += 1) {
    figures.countEnding({ ...after(10), refused: n < (refused.endings ?? 0) ? 3 : 0 }, isWithin, 0);
    for (const kind of lookKinds)
      figures.countLook(kind, n < (refused[kind] ?? 0) ? "refused" : "inactive", isWithin);
  }
}

/** A state with ten of each while it lasted. */
function state(refused: Refused = {}): Figures {
  const figures = new Figures();
  countTen(figures, refused, true);
  return figures;
}

test("most looks must be answered, those at once and those later", () => {
  for (const kind of lookKinds) {
    expect(state({ [kind]: 5 }).objections()).toEqual([]);
    expect(state({ [kind]: 6 }).objections()).toEqual([`only 40 % of the ${kind} looks were answered`]);
  }
});

test("most endings must not be refused at first", () => {
  expect(state({ endings: 5 }).objections()).toEqual([]);
  expect(state({ endings: 6 }).objections()).toEqual([
    "only 4 of 10 endings were neither refused at first nor took 5 s longer than commits waited",
  ]);
});

test("what came before the state and after it makes up for nothing, and spoils nothing", () => {
  const worst = { first: 6, later: 6, endings: 6 };
  const figures = state(worst);
  const found = figures.objections();
  expect(found).toHaveLength(3);
  for (let n = 0; n < 10; n += 1) countTen(figures, {}, false);
  expect(figures.objections()).toEqual(found);
  const good = state();
  for (let n = 0; n < 10; n += 1) countTen(good, worst, false);
  expect(good.objections()).toEqual([]);
  // It is a token whose end was acknowledged all the same.
  good.countLook("later", "active", false);
  expect([good.ended, good.active]).toEqual([110, 1]);
});

test("most endings must not take long, beside the time for which commits waited after they were asked for", () => {
  const figures = new Figures();
  for (const kind of lookKinds) figures.countLook(kind, "inactive", true);
  figures.countEnding(after(5_000), true, 0);
  // The standby was taken out six seconds after this one was asked for, and two after that one.
  figures.countEnding(after(11_000), true, 6_000);
  figures.countEnding(after(7_000, 4_000), true, 6_000);
  // This one was asked for when it was out, so that it waited for nobody.
  figures.countEnding(after(5_001, 6_001), true, 6_000);
  for (let n = 0; n < 2; n += 1) figures.countEnding(after(5_001), true, 0);
  const late =
    "1 of 1 endings took longer than 5000 ms, though commits waited for the standby no more: at most 5001 ms";
  expect(figures.objections()).toEqual([late]);
  figures.countEnding(after(11_001), true, 6_000);
  expect(figures.objections()).toEqual([
    "only 3 of 7 endings were neither refused at first nor took 5 s longer than commits waited",
    late,
  ]);
});

test("every ending that is asked for once commits wait no more is acknowledged within five seconds", () => {
  const retried = (totalMs: number, askedAt: number) => ({ ...after(10, askedAt), refused: 2, totalMs });
  const figures = state();
  for (const ending of [after(5_000, 6_000), retried(5_000, 6_001)]) figures.countEnding(ending, true, 6_000);
  // These waited, or were asked for in another state.
  figures.countEnding(after(6_000, 5_999), true, 6_000);
  figures.countEnding(after(6_000, 7_000), false, 6_000);
  figures.countEnding(after(6_000, 7_000), true, Infinity);
  figures.countEnding(after(6_000, 7_000), true, 0);
  expect(figures.objections()).toEqual([]);
  figures.countEnding(retried(5_001, 6_000), true, 6_000);
  figures.countEnding(after(5_200, 7_000), true, 6_000);
  expect(figures.objections()).toEqual([
    "2 of 4 endings took longer than 5000 ms, though commits waited for the standby no more: at most 5200 ms",
  ]);
  // On a machine where the slowest took 2.8 s while all was well, five seconds are as much as it may be; then more.
  expect(figures.objections(2_800)).toHaveLength(1);
  expect(figures.objections(2_999)).toEqual([
    "1 of 4 endings took longer than 5199 ms, though commits waited for the standby no more: at most 5200 ms",
  ]);
  expect(figures.objections(3_000)).toEqual([]);
});

test("the slowest ending of a state counts if it was asked for while that lasted, with its retries", () => {
  const figures = state();
  figures.countEnding({ ...after(10), refused: 2, totalMs: 700 }, true, 0);
  figures.countEnding(after(900), false, 0);
  expect(figures.slowestMs).toBe(700);
});

test("an ending that was acknowledged while commits still waited has waited for them", () => {
  const figures = state();
  for (let n = 0; n < 100; n += 1) figures.countEnding(after(5_500), true, Infinity);
  expect(figures.objections()).toEqual([]);
});

/** Acknowledged at the second request. @param ms of the first */
const retriedAfter = (ms: number) => ({ ...after(10), refused: 1, longestMs: ms });

test("no request of an ending hangs, whatever comes of it, whenever it was asked, and however long commits wait", () => {
  for (const isWithin of [true, false])
    for (const waitedUntil of [0, 6_000, Infinity]) {
      const figures = state();
      for (const ending of [after(12_000), retriedAfter(12_000)])
        figures.countEnding(ending, isWithin, waitedUntil);
      expect(figures.objections()).toEqual([]);
      for (const ending of [after(12_001), retriedAfter(14_000)])
        figures.countEnding(ending, isWithin, waitedUntil);
      expect(figures.objections()).toEqual(["2 endings hung for more than 12 s, at most 14000 ms"]);
    }
});

test("what its caller gave up hung, also while commits waited", () => {
  const figures = state();
  figures.countEnding(retriedAfter(patienceMs), true, 6_000);
  expect(figures.objections()).toEqual(["1 endings hung for more than 12 s, at most 15000 ms"]);
});

test("what the service refused by its own deadline of ten seconds did not hang", () => {
  const figures = state();
  figures.countEnding(retriedAfter(10_100), true, 0);
  expect(figures.objections()).toEqual([]);
});

test("a state in which nothing has ended and nobody has looked proves nothing", () => {
  expect(new Figures().objections()).toEqual([
    "only 0 % of the first looks were answered",
    "only 0 % of the later looks were answered",
    "only 0 of 0 endings were neither refused at first nor took 5 s longer than commits waited",
  ]);
  expect(Figures.row("empty", [new Figures()])).toEqual([
    ...["empty", "0", "0", "0", "none", "none", "none", "0", "0 %", "0", "0 %", "0"],
  ]);
});

test("the line of a state has all of it", () => {
  const figures = state({ endings: 2, later: 1 });
  figures.countLook("first", "active", true);
  expect(Figures.row("stale", [figures])).toEqual([
    ...["stale", "10", "6", "3", "10 ms", "10 ms", "10 ms", "11", "100 %", "10", "90 %", "1"],
  ]);
  const other = state({ later: 4 });
  for (let n = 0; n < 11; n += 1) other.countEnding(after(30), true, 0);
  // What was asked before the state and after it is no part of what is usual in it.
  for (let n = 0; n < 100; n += 1)
    other.countEnding({ ...after(900), refused: 1, longestMs: 1_000 }, false, 0);
  other.countLook("later", "active", false);
  expect(Figures.row("stale", [figures, other])).toEqual([
    ...["stale", "131", "106", "3", "10 ms", "30 ms", "1000 ms", "21", "100 %", "20", "75 %", "2"],
  ]);
});
