/** When what was seen in a state of a standby proves nothing: each rule, where it holds and where it does not. */
import { expect, test } from "vitest";
import { Figures, type LookKind, lookKinds } from "./strictness-figures.ts";

type Refused = Partial<Record<LookKind | "endings", number>>;

/** Ten endings and ten looks of each kind. @param refused how many of them were, of endings at first */
function countTen(figures: Figures, refused: Refused, isWithin: boolean): void {
  for (let n = 0; n < 10; n += 1) {
    figures.countEnding({ refused: n < (refused.endings ?? 0) ? 3 : 0, ms: 10, longestMs: 10 }, isWithin, 0);
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

/** Acknowledged at the first request. */
const after = (ms: number) => ({ refused: 0, ms, longestMs: ms });

test("most endings must not hang", () => {
  const figures = new Figures();
  for (const kind of lookKinds) figures.countLook(kind, "inactive", true);
  figures.countEnding(after(5_000), true, 0);
  // Commits waited for six seconds.
  figures.countEnding(after(11_000), true, 6_000);
  for (let n = 0; n < 2; n += 1) figures.countEnding(after(5_001), true, 0);
  expect(figures.objections()).toEqual([]);
  figures.countEnding(after(11_001), true, 6_000);
  expect(figures.objections()).toEqual([
    "only 2 of 5 endings were neither refused at first nor took 5 s longer than commits waited",
  ]);
});

test("no request of an ending hangs for long, whatever comes of it, and whenever it was asked", () => {
  for (const isWithin of [true, false]) {
    const figures = state();
    figures.countEnding(after(10_000), isWithin, 0);
    figures.countEnding(after(16_000), isWithin, 6_000);
    expect(figures.objections()).toEqual([]);
    figures.countEnding(after(10_001), isWithin, 0);
    figures.countEnding({ refused: 1, ms: 10, longestMs: 16_500 }, isWithin, 6_000);
    expect(figures.objections()).toEqual([
      "2 endings hung for more than 10 s longer than commits waited, at most 16500 ms",
    ]);
  }
});

test("a state in which nothing has ended and nobody has looked proves nothing", () => {
  expect(new Figures().objections()).toEqual([
    "only 0 % of the first looks were answered",
    "only 0 % of the later looks were answered",
    "only 0 of 0 endings were neither refused at first nor took 5 s longer than commits waited",
  ]);
  expect(new Figures().row("empty")).toEqual([
    ...["empty", "0", "0", "0", "none", "none", "none", "0", "0 %", "0", "0 %", "0"],
  ]);
});

test("the line of a state has all of it", () => {
  const figures = state({ endings: 2, later: 1 });
  figures.countLook("first", "active", true);
  expect(figures.row("stale")).toEqual([
    ...["stale", "10", "6", "3", "10 ms", "10 ms", "10 ms", "11", "100 %", "10", "90 %", "1"],
  ]);
});
