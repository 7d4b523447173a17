/** When what was seen in a state of a standby proves nothing: each rule, where it holds and where it does not. */
import { expect, test } from "vitest";
import { Figures, type LookKind, lookKinds } from "./strictness-figures.ts";

/** A state with ten endings and ten looks of each kind. @param refused how many of them were, of endings at first */
function state(refused: Partial<Record<LookKind | "endings", number>> = {}): Figures {
  const figures = new Figures();
  for (let n = 0; n < 10; n += 1) {
    figures.countEnding(n < (refused.endings ?? 0) ? 3 : 0, 10);
    for (const kind of lookKinds) figures.countLook(kind, n < (refused[kind] ?? 0) ? "refused" : "inactive");
  }
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
  expect(state({ endings: 6 }).objections()).toEqual(["only 4 of 10 endings were not refused at first"]);
});

test("a state in which nothing has ended and nobody has looked proves nothing", () => {
  expect(new Figures().objections()).toEqual([
    "only 0 % of the first looks were answered",
    "only 0 % of the later looks were answered",
    "only 0 of 0 endings were not refused at first",
  ]);
});

test("the line of a state has all of it", () => {
  const figures = state({ endings: 2, later: 1 });
  figures.countLook("first", "active");
  expect(figures.row("stale")).toEqual([
    ...["stale", "10", "6", "3", "10 ms", "10 ms", "11", "100 %", "10", "90 %", "1"],
  ]);
});
