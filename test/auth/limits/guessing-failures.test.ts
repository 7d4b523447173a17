/** What becomes of a guess and its counts where there is no room for it, and where the counters fail or stand still. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { type AttemptCounters, createKeyOf } from "../../../src/auth/limits/attempt-counters.ts";
import { createDatabaseCounters } from "../../../src/auth/limits/database-counters.ts";
import {
  createGuessing,
  type GuessObserver,
  guessingRules,
  UnknownVerdict,
} from "../../../src/auth/limits/guessing.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { WorkLimit } from "../../../src/auth/work-limit.ts";
import { unavailable } from "../../../src/platform/base/errors.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { rows } from "../../support/rows.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { oneByOne } from "./guessing-fixture.ts";

const cleanup = suiteCleanup();
let db: Database;
let counters: AttemptCounters;
beforeAll(async () => {
  const own = await createMigratedServiceDatabase("PGlite", authMigrations);
  cleanup.defer(() => own.drop());
  const database = await own.open();
  db = database.db;
  counters = createDatabaseCounters(db, createKeyOf("https://issuer"));
});
beforeEach(async () => void (await db.execute(sql`delete from auth.attempts`)));

const identity = { id: "u", createdAt: new Date(0), phone: "+12025550123", passwordHash: "hash" };
const accountOf = (id: string) => ({ name: id, identity: { ...identity, id } });
const ofPassword = { rule: guessingRules.password, subject: "identity 0 hash u" };
const ofCode = { rule: guessingRules.code, subject: "identity 0 +12025550123 u" };
const ofClient = { rule: guessingRules.client, subject: "app" };
const limitOf = (places: number) => new WorkLimit(places, () => new Error("no room"));
const guess = {
  kind: "password",
  clientId: "app",
  account: accountOf("u"),
  judging: limitOf(100),
} as const;

/** Limits with counters of which some part does not work. */
function limits(
  broken: Partial<AttemptCounters>,
  observed: Partial<GuessObserver> = {},
  rules = guessingRules,
  hasActiveAuthorization = async (_identityId: string) => false,
) {
  return createGuessing({
    rules,
    counters: { ...counters, ...broken },
    hasActiveAuthorization,
    observer: {
      failed: async () => undefined,
      refused: () => undefined,
      notSettled: () => undefined,
      ...observed,
    },
  });
}

/** The number of attempts that count, with this one. */
async function countOf(counter: typeof ofPassword): Promise<number> {
  const attempt = await counters.count(counter);
  return attempt?.count ?? expect.fail("the counter is full");
}

/** The attempts that each counter has, of those that were ever written. */
async function states(): Promise<readonly number[]> {
  const found = await rows<{ points: number }>(db, sql`select points from auth.attempts order by key`);
  return found.map(({ points }) => points);
}

describe("a guess", () => {
  it("whose failure cannot be counted for the client fails, and counts for its account", async () => {
    const { limit } = limits({
      count: (counter) =>
        counter.subject === guess.clientId
          ? Promise.reject(new Error("no connection"))
          : counters.count(counter),
    });
    await expect(limit(guess, async () => undefined)).rejects.toThrow("no connection");
    expect(await countOf(ofPassword)).toBe(2);
  });

  it("goes beyond its client's limit by no more than are judged at the same time", async () => {
    const [failures, places] = [3, 2];
    const rules = { ...guessingRules, client: { ...guessingRules.client, failures } };
    const { limit } = limits({}, {}, rules);
    const judging = limitOf(places);
    let judged = 0;
    for (let round = 0; round < 6; round += 1) {
      const guesses = Array.from({ length: 10 }, (_, n) => {
        const account = accountOf(`${round}-${n}`);
        return limit({ ...guess, account, judging }, async () => {
          judged += 1;
          return undefined;
        });
      });
      await Promise.allSettled(guesses);
    }
    expect(judged).toBeGreaterThanOrEqual(failures);
    expect(judged).toBeLessThanOrEqual(failures + places);
  });

  it("beyond its client's limit is refused after the same look, whether its name is an identity's or not", async () => {
    const rules = { ...guessingRules, client: { ...guessingRules.client, failures: 1 } };
    const looks: string[] = [];
    const { limit } = limits({}, {}, rules, async (identityId) => {
      looks.push(identityId);
      return identityId !== "stranger";
    });
    await counters.count({ rule: rules.client, subject: guess.clientId });
    const outcomes = await oneByOne(["friend", "stranger", undefined], (id) =>
      limit(
        { ...guess, account: { name: "invented", identity: id === undefined ? id : { ...identity, id } } },
        async () => "right",
      ).catch(String),
    );
    const refused = expect.stringContaining("Too many failed attempts");
    expect(outcomes).toEqual(["right", refused, refused]);
    expect(looks).toEqual(["friend", "stranger", ""]);
  });

  it("that finds no room costs no attempt and writes nothing, however many come at once", async () => {
    const { limit } = limits({});
    const judging = limitOf(2);
    const verdict = Promise.withResolvers<undefined>();
    // More than the account may try, so that those without room would be refused for the limit if they counted.
    const outcomes = Array.from({ length: 30 }, () => limit({ ...guess, judging }, () => verdict.promise));
    const refused = outcomes.map((outcome) => outcome.then(() => "judged", String));
    await waitFor(async () => expect(await states()).toEqual([2]));
    verdict.resolve(undefined);
    const judged = (await Promise.all(refused)).filter((text) => text === "judged");
    expect(judged).toHaveLength(2);
    expect(new Set(await Promise.all(refused))).toEqual(new Set(["judged", "Error: no room"]));
    expect(await states()).toEqual([2, 2]);
  });

  it("that a limit refuses takes no room from those who may guess", async () => {
    for (let n = 0; n < guessingRules.password.failures; n += 1) await counters.count(ofPassword);
    const looks = Promise.withResolvers<void>();
    const { limit } = limits({
      async full(asked) {
        const found = await counters.full(asked);
        if (found.length > 0) await looks.promise;
        return found;
      },
    });
    const judging = limitOf(1);
    const flood = Array.from({ length: 20 }, () =>
      limit({ ...guess, judging }, async () => "right").catch(String),
    );
    const other = { ...guess, account: accountOf("v"), judging };
    expect(await limit(other, async () => "right")).toBe("right");
    looks.resolve();
    for (const refused of await Promise.all(flood)) expect(refused).toContain("Too many failed attempts");
  });

  it("that may have been judged counts for its account, and not for its client", async () => {
    const { limit } = limits({});
    const timedOut = new UnknownVerdict(unavailable("The verifier", new Error("timed out")));
    for (let n = 0; n < 3; n += 1)
      await expect(limit(guess, () => Promise.reject(timedOut))).rejects.toBe(timedOut);
    expect(await Promise.all([countOf(ofPassword), countOf(ofClient)])).toEqual([4, 1]);
  });

  it("that was right is answered though its counts cannot be cleared", async () => {
    const { limit, phoneProven } = limits({ clear: () => Promise.reject(new Error("no connection")) });
    expect(await limit(guess, async () => "right")).toBe("right");
    await phoneProven(identity);
  });
});

it("a proof clears the counts of passwords and of codes", async () => {
  for (const counter of [ofPassword, ofCode]) await counters.count(counter);
  await limits({}).phoneProven(identity);
  expect(await Promise.all([countOf(ofPassword), countOf(ofCode)])).toEqual([1, 1]);
});
