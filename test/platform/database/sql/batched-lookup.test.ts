/** Batched look-ups: no result is older than its request, every waiter gets a failure, and the queue is bounded. */
import { afterEach, describe, expect, test, vi } from "vitest";
import { ErrorKinds, ServiceError } from "../../../../src/platform/base/errors.ts";
import { batched } from "../../../../src/platform/database/sql/batched-lookup.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** A query that has started and that the test ends. */
interface Query {
  readonly keys: readonly string[];
  respond(values: Record<string, string>): void;
  fail(error: Error): void;
}

/** A database whose query results the test supplies. */
function controlled() {
  const started: Query[] = [];
  const load = (keys: readonly string[]) =>
    new Promise<ReadonlyMap<string, string>>((resolve, reject) => {
      started.push({ keys, respond: (values) => resolve(new Map(Object.entries(values))), fail: reject });
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

/** Lets everything happen that does not need a query's result. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

describe("batched", () => {
  test("a look-up never gets the result of a query that started before it", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    const before = look("token");
    const first = await database.query(0);
    // The query runs, and sees the current state. Then the state changes, and is looked up.
    const after = look("token");
    await settle();
    const second = await database.query(1);
    second.respond({ token: "new" });
    expect(await after).toBe("new");
    first.respond({ token: "old" });
    expect(await before).toBe("old");
  });

  test("this holds for every look-up, however look-ups, starts and results are interleaved", async () => {
    // The state counts up; a query sees the state at its start, so no result may be below the state at its look-up.
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

  test("look-ups of one turn share a query, each key once, and each gets its own result", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    const answers = Promise.all(["a", "b", "a", "unknown", "b"].map(look));
    const query = await database.query(0);
    expect(query.keys).toEqual(["a", "b", "unknown"]);
    query.respond({ a: "1", b: "2", c: "3" });
    expect(await answers).toEqual(["1", "2", "1", undefined, "2"]);
    await settle();
    expect(database.started).toHaveLength(1);
  });

  test("a result is not cached: the next look-up runs a new query", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    for (const value of ["1", "2"]) {
      const result = look("a");
      (await database.query(Number(value) - 1)).respond({ a: value });
      expect(await result).toBe(value);
    }
  });

  test("a query that fails rejects all look-ups that wait for it, and no others", async () => {
    const database = controlled();
    const look = batched<string, string>({ load: database.load });
    const failing = Promise.allSettled([look("a"), look("a"), look("b")]);
    const first = await database.query(0);
    const fine = look("a");
    const error = new Error("the database is away");
    first.fail(error);
    expect(await failing).toEqual(Array(3).fill({ status: "rejected", reason: error }));
    (await database.query(1)).respond({ a: "1" });
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
      query.respond(Object.fromEntries(query.keys.map((key) => [key, `value ${key}`])));
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
      database.started[0]?.respond({ a: "1" });
      expect(await first).toBe("1");
      await settle();
      expect(database.started.map(({ keys }) => keys)).toEqual([["a"], ["b", "c"]]);
      database.started[1]?.respond({ b: "2", c: "3" });
      expect(await others).toEqual(["2", "3"]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("where a number is set that is enough for a query, so many do not wait for the one that runs", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const database = controlled();
      const look = batched<string, string>({ load: database.load, enoughKeys: 3 });
      const keysOfQueries = () => database.started.map(({ keys }) => keys);
      void look("a");
      await settle();
      void look("b");
      void look("c");
      await settle();
      expect(keysOfQueries()).toEqual([["a"]]);
      // Those that come in the same turn as the last that is needed share its query, too.
      void look("d");
      void look("e");
      await settle();
      expect(keysOfQueries()).toEqual([["a"], ["b", "c", "d", "e"]]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("no look-up waits long for a query that does not end, and a full batch does not wait at all", async () => {
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
      for (const { keys, respond } of database.started)
        respond(Object.fromEntries(keys.map((key) => [key, key])));
      expect(await Promise.all(answers)).toEqual(["stuck", "a", "b", "c", "d"]);
      vi.advanceTimersByTime(10);
      await settle();
      expect(database.started).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });

  describe("when the database does not keep up", () => {
    afterEach(() => vi.restoreAllMocks());

    test("further keys are refused at once as unavailable; those that wait get results", async () => {
      const database = controlled();
      const look = batched<string, string>({ load: database.load, maxQueries: 1, maxWaiting: 3 });
      const running = look("running");
      const query = await database.query(0);
      const waiting = ["a", "b", "c"].map(look);
      const refused = await look("d").catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(ServiceError);
      expect(refused).toMatchObject({ kind: ErrorKinds.unavailable, retryAfterSeconds: 2 });
      // One more look-up of the same key needs no further room.
      waiting.push(look("a"));
      query.respond({ running: "yes" });
      expect(await running).toBe("yes");
      (await database.query(1)).respond({ a: "1", b: "2", c: "3" });
      expect(await Promise.all(waiting)).toEqual(["1", "2", "3", "1"]);
      const again = look("d");
      (await database.query(2)).respond({ d: "4" });
      expect(await again).toBe("4");
    });
  });
});
