/** An outage of the database is logged once for all who meet it. */
import { beforeEach, describe, expect, it } from "vitest";
import { isDatabaseAway } from "../../../src/platform/base/database-errors.ts";
import { isOfOutage, Outage } from "../../../src/platform/base/outage.ts";
import { noConnection } from "../../../src/platform/database/connections/lane.ts";

const away = () => Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });

describe("an outage", () => {
  let now: number;
  let lines: [string, number][];
  let outage: Outage;
  beforeEach(() => {
    now = 1_000;
    lines = [];
    const log = (durationMs: number, error?: unknown) =>
      void lines.push([error === undefined ? "over" : String(error), durationMs]);
    outage = new Outage(log, () => now);
  });

  const fail = (error: Error) => outage.noting(() => Promise.reject(error)).catch(() => undefined);

  /** Lets time pass in steps in which some succeed and others fail. */
  async function pass(milliseconds: number, ...steps: ("fails" | "succeeds")[]): Promise<void> {
    for (const end = now + milliseconds; now < end; now += 500)
      for (const step of steps) await (step === "fails" ? fail(away()) : outage.noting(async () => 1));
  }

  it("has a line when it begins, one a minute, and one with its duration when it is over", async () => {
    await pass(3_000, "succeeds");
    await pass(150_000, "fails", "fails");
    await pass(15_000, "succeeds");
    const text = "Error: connect ECONNREFUSED";
    expect(lines).toEqual([
      [text, 0],
      [text, 60_000],
      [text, 120_000],
      ["over", 150_000],
    ]);
  });

  it("is one where some meet it and others do not, and the next has lines of its own", async () => {
    await pass(20_000, "fails", "succeeds");
    await pass(15_000, "succeeds");
    await pass(1_000, "fails");
    expect(lines.map(([, durationMs]) => durationMs)).toEqual([0, 20_000 - 500, 0]);
  });

  it("has a line at once where the server is there again and objects to something", async () => {
    await pass(10_000, "fails");
    for (const code of ["28P01", "28P01", "57P03"])
      await fail(Object.assign(new Error(code), { code, severity: "FATAL" }));
    expect(lines).toEqual([
      ["Error: connect ECONNREFUSED", 0],
      ["Error: 28P01", 10_000],
    ]);
  });

  it("is none of an error after which the database serves others, which keeps its own line", async () => {
    const late = Object.assign(new Error("canceled"), { code: "57014" });
    await fail(late);
    expect(lines).toEqual([]);
    expect(isOfOutage(late)).toBe(false);
  });

  it("is none where all connections are in use, and what failed for that is soon tried again all the same", async () => {
    const busy = noConnection();
    await fail(busy);
    expect([lines, isOfOutage(busy), isDatabaseAway(busy)]).toEqual([[], false, true]);
    await fail(noConnection(away()));
    expect(lines).toHaveLength(1);
  });

  it("is recognised in what an error has caused", async () => {
    const error = away();
    await fail(error);
    expect(isOfOutage(new Error("a step failed", { cause: error }))).toBe(true);
    expect(isOfOutage({ ...error }), "a copy").toBe(true);
    expect(isOfOutage(away())).toBe(false);
  });
});
