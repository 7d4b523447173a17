/** Which of a chunk's messages begin, and when: as far as they are released, there is room, and their time has not gone. */
import { describe, expect, test } from "vitest";
import { Flow } from "../../../src/push/delivery/flow.ts";
import { InFlightBudget } from "../../../src/push/delivery/in-flight-budget.ts";

/** A flow of messages that are answered when the test says so. */
function createFlow({ room = 100 } = {}) {
  const budget = new InFlightBudget(room, 1);
  const sent: number[] = [];
  const answers: (() => void)[] = [];
  const state = { mayBegin: true, isLate: false };
  const flow = new Flow({
    budget,
    isRetry: false,
    mayBegin: () => state.mayBegin,
    isLate: () => state.isLate,
    send(index) {
      sent.push(index);
      return new Promise((resolve) => answers.push(() => resolve({ kind: "sent" })));
    },
    onException: (thrown) => {
      throw thrown;
    },
    onOutcome: () => undefined,
  });
  return { flow, sent, state, answer: () => answers.shift()?.() };
}

/** Whether it resolves without anything else. */
async function isOver(promise: Promise<void>): Promise<boolean> {
  let isOver = false;
  void promise.then(() => {
    isOver = true;
  });
  await new Promise(setImmediate);
  return isOver;
}

describe("messages that were released", () => {
  test("and could not begin before their time had gone are to be released anew, and do not begin together", async () => {
    const { flow, sent, state } = createFlow();
    expect(flow.release(3)).toBe(true);
    state.mayBegin = false;
    expect(flow.release(8)).toBe(true);
    const started = flow.started();
    expect(await isOver(started)).toBe(false);
    Object.assign(state, { mayBegin: true, isLate: true });
    flow.onRoom();
    expect(await isOver(started)).toBe(true);
    expect([sent, flow.begun, flow.hasReleased]).toEqual([[0, 1, 2], 3, false]);
    expect(flow.release(9), "their time has still gone").toBe(false);
    state.isLate = false;
    expect(flow.release(5)).toBe(true);
    expect(sent).toEqual([0, 1, 2, 3, 4]);
  });

  test("keep their time while there is no room, and begin one by one as there is", async () => {
    const { flow, sent, state, answer } = createFlow({ room: 2 });
    flow.release(4);
    state.isLate = true;
    flow.onRoom();
    const started = flow.started();
    expect(await isOver(started)).toBe(false);
    answer();
    await new Promise(setImmediate);
    expect([sent, await isOver(started)]).toEqual([[0, 1, 2], false]);
    answer();
    expect(await isOver(started)).toBe(true);
    expect(sent).toEqual([0, 1, 2, 3]);
  });
});
