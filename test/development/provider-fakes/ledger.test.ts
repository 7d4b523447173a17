import { describe, expect, it } from "vitest";
import { createLedger } from "../../../src/development/provider-fakes/ledger.ts";
import { movableClock } from "../../support/movable-clock.ts";

function ledgerWith(...messages: [token: string, messageId?: string, collapseId?: string][]) {
  const ledger = createLedger(movableClock());
  for (const [token, messageId, collapseId] of messages) {
    ledger.record({ token, messageId, collapseId, payload: undefined });
  }
  return ledger;
}

describe("the ledger", () => {
  it("counts tokens and messages", () => {
    const ledger = ledgerWith(["a", "1", "n"], ["b", "2", "n"], ["a", "3", "m"]);
    expect(ledger.summary()).toMatchObject({ tokens: 2, messages: 3, repeats: 0, tokensNotifiedTwice: 0 });
  });

  it("counts the same message id of a token again as a repeat, whether first or later", () => {
    const ledger = ledgerWith(
      ["a", "1", "n"],
      ["a", "1", "n"],
      ["a", "2", "m"],
      ["a", "2", "m"],
      ["b", "1", "n"],
    );
    expect(ledger.summary()).toMatchObject({ messages: 5, repeats: 2, tokensNotifiedTwice: 0 });
  });

  it("counts a token once that had several ids of one notification", () => {
    const ledger = ledgerWith(
      ["a", "1", "n"],
      ["a", "2", "n"],
      ["a", "3", "n"],
      ["b", "4", "n"],
      ["b", "5", "m"],
    );
    expect(ledger.summary()).toMatchObject({ repeats: 0, tokensNotifiedTwice: 1 });
  });

  it("sees two ids of a notification that is not the token's first", () => {
    const ledger = ledgerWith(["a", "1", "n"], ["a", "2", "m"], ["a", "3", "m"]);
    expect(ledger.summary().tokensNotifiedTwice).toBe(1);
  });

  it("says nothing of repeats where messages have no id", () => {
    const ledger = ledgerWith(["a"], ["a"], ["a", "1", "n"], ["a", "1", "n"]);
    const now = ledger.summary().lastAt;
    expect(ledger.summary()).toMatchObject({ messages: 4, repeats: 1 });
    expect(ledger.token("a")).toEqual({
      token: "a",
      count: 4,
      messages: [{ messageId: "1", collapseId: "n", count: 2, firstAt: now, lastAt: now }],
    });
  });

  it("tells when each message came first and last", () => {
    const clock = movableClock();
    const ledger = createLedger(clock);
    const start = clock.now();
    for (const messageId of ["1", "2", "1", "2"]) {
      ledger.record({ token: "a", messageId, collapseId: undefined, payload: undefined });
      clock.move(1);
    }
    const times = ledger.token("a")?.messages.map(({ firstAt, lastAt }) => [firstAt - start, lastAt - start]);
    expect(times).toEqual([
      [0, 2_000],
      [1_000, 3_000],
    ]);
  });

  it("tells of each repeat what had become of the message before", () => {
    const clock = movableClock();
    const ledger = createLedger(clock);
    const start = clock.now();
    const connection = { endedAt: undefined as number | undefined, reset() {} };
    for (const messageId of ["1", "2", "1", "1", "2"]) {
      const message = { token: "a", messageId, collapseId: `n${messageId}`, payload: undefined };
      const arrival = ledger.record(message, { connection, isOpen: messageId === "2" });
      clock.move(1);
      if (messageId === "1") ledger.recordResponse(arrival);
    }
    connection.endedAt = start + 9_000;
    const repeat = (messageId: string, at: number, before: number, answeredAt: number | null) => ({
      ...{ token: "a", messageId, collapseId: `n${messageId}`, at: start + at },
      before: {
        at: start + before,
        answeredAt: answeredAt && start + answeredAt,
        endedAt: start + 9_000,
        isPending: messageId === "2",
      },
    });
    expect(ledger.repeats()).toEqual([
      repeat("1", 2_000, 0, 1_000),
      repeat("1", 3_000, 2_000, 3_000),
      repeat("2", 4_000, 1_000, null),
    ]);
    ledger.clear();
    expect(ledger.repeats()).toEqual([]);
  });

  it("pages through tokens in the order of their first message", () => {
    const ledger = ledgerWith(["c", "1"], ["a", "2"], ["b", "3"], ["c", "4"]);
    const names = (page: { token: string }[]) => page.map(({ token }) => token);
    expect(names(ledger.tokens("", 2))).toEqual(["c", "a"]);
    expect(names(ledger.tokens("a", 2))).toEqual(["b"]);
    expect(ledger.tokens("b", 2)).toEqual([]);
    expect(ledger.tokens("not there", 2)).toEqual([]);
  });

  it("tells the busiest second, the first and the last", () => {
    const clock = movableClock();
    clock.move(1 - (clock.now() % 1000) / 1000);
    const ledger = createLedger(clock);
    const start = clock.now();
    for (const count of [2, 5, 3]) {
      for (let at = 0; at < count; at += 1) {
        ledger.record({ token: "a", messageId: undefined, collapseId: undefined, payload: undefined });
      }
      clock.move(1);
    }
    expect(ledger.summary()).toMatchObject({ peakPerSecond: 5, firstAt: start, lastAt: start + 2000 });
  });

  it("keeps the last hundred messages whole, the newest last", () => {
    const ledger = createLedger(movableClock());
    const record = (at: number) =>
      ledger.record({ token: String(at), messageId: undefined, collapseId: undefined, payload: at });
    for (let at = 0; at < 30; at += 1) record(at);
    expect(ledger.recent().map(({ payload }) => payload)).toEqual(Array.from({ length: 30 }, (_, at) => at));
    for (let at = 30; at < 250; at += 1) record(at);
    expect(ledger.recent().map(({ payload }) => payload)).toEqual(
      Array.from({ length: 100 }, (_, at) => at + 150),
    );
  });

  it("is empty once cleared", () => {
    const ledger = ledgerWith(["a", "1", "n"], ["a", "1", "n"], ["a", "2", "n"]);
    ledger.countResponse("UNREGISTERED");
    ledger.clear();
    expect(ledger.summary()).toEqual(ledgerWith().summary());
    expect([ledger.tokens(), ledger.recent(), ledger.token("a")]).toEqual([[], [], undefined]);
  });
});
