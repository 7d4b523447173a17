/** Gathered look-ups: no answer is older than its question, every waiter hears of a failure, nothing piles up. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { ErrorKinds, ServiceError } from "../../../src/platform/base/errors.ts";
import { batched } from "../../../src/platform/database/batched-lookup.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A query that has started and that the test ends. */
interface Query {
  readonly keys: readonly string[];
  answer(values: Record<string, string>): void;
  fail(error: Error): void;
}

/** A database whose queries the test answers. */
function controlled() {
  const started: Query[] = [];
  const load = (keys: readonly string[]) =>
    new Promise<ReadonlyMap<string, string>>((resolve, reject) => {
      started.push({ keys, answer: (values) => resolve(new Map(Object.entries(values))), fail: reject });
    });
  return {
    load,
    started,
    /** The query with this number, from 0, as soon as it has started. */
    async query(number: number): Promise<Query> {
      await waitFor(() => expect(started.length).toBeGreaterThan(number), 1);
      return started[number] ?? expect.fail("no query");
    },
  };
}

/** Lets everything happen that needs no answer of a query. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

describe("batched", () => {
  test("a question is never answered by a query that started before it was asked", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    const before = look("token");
    const first = await database.query(0);
    // The query runs; what it sees is the state of now. Then the state changes, and is asked for.
    const after = look("token");
    await settle();
    const second = await database.query(1);
    second.answer({ token: "new" });
    expect(await after).toBe("new");
    first.answer({ token: "old" });
    expect(await before).toBe("old");
  });

  test("this holds for every question, however questions, starts and answers are interleaved", async () => {
    // The state counts up; a query sees the state of its start, so no answer may be below the state at its question.
    let state = 0;
    const running: (() => void)[] = [];
    const look = batched<string, number>({
      load: (keys) => {
        const seen = new Map(keys.map((key) => [key, state]));
        return new Promise((resolve) => running.push(() => resolve(seen)));
      },
      maxKeys: 3,
    });
    let random = 12_345;
    const next = (below: number) => {
      random = (random * 1_103_515_245 + 12_345) % 2_147_483_648;
      return random % below;
    };
    const asked: Promise<void>[] = [];
    const tooOld: number[] = [];
    for (let step = 0; step < 3_000; step += 1) {
      const choice = next(10);
      if (choice < 4) {
        const atQuestion = state;
        asked.push(
          look(`key-${next(6)}`).then((seen = -1) => {
            if (seen < atQuestion) tooOld.push(seen - atQuestion);
          }),
        );
      } else if (choice < 6) state += 1;
      else if (choice < 8) running.splice(next(running.length || 1), 1)[0]?.();
      else await new Promise((resolve) => setImmediate(resolve));
    }
    const all = Promise.all(asked);
    let isOver = false;
    void all.finally(() => {
      isOver = true;
    });
    while (!isOver) {
      running.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await all;
    expect(asked.length).toBeGreaterThan(1_000);
    expect(tooOld).toEqual([]);
  });

  test("questions of one turn share a query, each key once, and each gets its own answer", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    const answers = Promise.all(["a", "b", "a", "unknown", "b"].map(look));
    const query = await database.query(0);
    expect(query.keys).toEqual(["a", "b", "unknown"]);
    query.answer({ a: "1", b: "2", c: "3" });
    expect(await answers).toEqual(["1", "2", "1", undefined, "2"]);
    await settle();
    expect(database.started).toHaveLength(1);
  });

  test("an answer is not kept: the next question is asked anew", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    for (const value of ["1", "2"]) {
      const answer = look("a");
      (await database.query(Number(value) - 1)).answer({ a: value });
      expect(await answer).toBe(value);
    }
  });

  test("a query that fails is an error to all who wait for it, and to nobody else", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    const failing = Promise.allSettled([look("a"), look("a"), look("b")]);
    const first = await database.query(0);
    const fine = look("a");
    const error = new Error("the database is away");
    first.fail(error);
    expect(await failing).toEqual(Array(3).fill({ status: "rejected", reason: error }));
    (await database.query(1)).answer({ a: "1" });
    expect(await fine).toBe("1");
  });

  test("a query that cannot even be started is an error like any other", async () => {
    const error = new Error("no connection");
    let isAway = true;
    const look = batched<string, string>({
      load: () => {
        if (isAway) throw error;
        return Promise.resolve(new Map([["a", "1"]]));
      },
      maxQueries: 1,
    });
    await expect(look("a")).rejects.toBe(error);
    isAway = false;
    expect(await look("a")).toBe("1");
  });

  test("no more queries run at once, and none is larger, than was set", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load, maxKeys: 4, maxQueries: 3 });
    const keys = Array.from({ length: 20 }, (_, index) => `${index}`);
    const answers = Promise.all(keys.map(look));
    const sizes: number[] = [];
    for (let answered = 0; answered < 5; answered += 1) {
      await settle();
      expect(database.started).toHaveLength(Math.min(5, answered + 3));
      const query = await database.query(answered);
      sizes.push(query.keys.length);
      query.answer(Object.fromEntries(query.keys.map((key) => [key, `value ${key}`])));
    }
    expect(sizes).toEqual([4, 4, 4, 4, 4]);
    expect(await answers).toEqual(keys.map((key) => `value ${key}`));
  });

  test("who comes while a query runs shares the next one, which starts when it ends", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const database = controlled();
      const look = batched<string, string>({ load: database.load });
      const first = look("a");
      await settle();
      const others = Promise.all(["b", "c"].map(look));
      await settle();
      expect(database.started.map(({ keys }) => keys)).toEqual([["a"]]);
      database.started[0]?.answer({ a: "1" });
      expect(await first).toBe("1");
      await settle();
      expect(database.started.map(({ keys }) => keys)).toEqual([["a"], ["b", "c"]]);
      database.started[1]?.answer({ b: "2", c: "3" });
      expect(await others).toEqual(["2", "3"]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("nobody waits long for a query that does not end, and as many as fill one not at all", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const database = controlled();
      const look = batched<string, string>({ load: database.load, maxKeys: 3, maxQueries: 4 });
      const answers = [look("stuck")];
      await settle();
      answers.push(look("a"));
      await settle();
      expect(database.started).toHaveLength(1);
      vi.advanceTimersByTime(2);
      await settle();
      expect(database.started.map(({ keys }) => keys)).toEqual([["stuck"], ["a"]]);
      answers.push(...["b", "c", "d"].map(look));
      await settle();
      expect(database.started.map(({ keys }) => keys)).toEqual([["stuck"], ["a"], ["b", "c", "d"]]);
      for (const { keys, answer } of database.started)
        answer(Object.fromEntries(keys.map((key) => [key, key])));
      expect(await Promise.all(answers)).toEqual(["stuck", "a", "b", "c", "d"]);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  describe("when the database does not keep up", () => {
    afterEach(() => vi.restoreAllMocks());

    test("further keys are refused at once as unavailable; those that wait are answered", async () => {
      const database = controlled();
      const look = batched<string, string>({ load: database.load, maxQueries: 1, maxWaiting: 3 });
      const running = look("running");
      const query = await database.query(0);
      const waiting = ["a", "b", "c"].map(look);
      const refused = await look("d").catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ServiceError);
      expect(refused).toMatchObject({ kind: ErrorKinds.unavailable, retryAfterSeconds: 2 });
      // One more who asks for the same costs no more.
      waiting.push(look("a"));
      query.answer({ running: "yes" });
      expect(await running).toBe("yes");
      (await database.query(1)).answer({ a: "1", b: "2", c: "3" });
      expect(await Promise.all(waiting)).toEqual(["1", "2", "3", "1"]);
      const again = look("d");
      (await database.query(2)).answer({ d: "4" });
      expect(await again).toBe("4");
    });
  });
});
