/** What becomes of a guess and its counts where the counters fail, or stand still. */
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type AttemptCounters, createKeyOf, isFull } from "../../../src/auth/limits/attempt-counters.ts";
import { createDatabaseCounters } from "../../../src/auth/limits/database-counters.ts";
import { createGuessing, guessingRules } from "../../../src/auth/limits/guessing.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const cleanup = suiteCleanup();
let counters: AttemptCounters;
beforeAll(async () => {
  const own = await createMigratedServiceDatabase("PGlite", authMigrations);
  cleanup.defer(() => own.drop());
  const database = await own.open();
  counters = createDatabaseCounters(database.db, createKeyOf("a secret of the settings"));
});

const ofPassword = { rule: guessingRules.password, subject: "identity u" };
const ofCode = { rule: guessingRules.code, subject: "identity u" };
const guess = { kind: "password", clientId: "app", account: { name: "u", identityId: "u" } } as const;

/** Limits with counters of which some part does not work. */
function limits(broken: Partial<AttemptCounters>) {
  return createGuessing({
    rules: guessingRules,
    counters: { ...counters, ...broken },
    hasLiveAuthorization: async () => false,
    observer: { failed: async () => undefined, refused: () => undefined, notSettled: () => undefined },
  });
}

/** The number of attempts that count, with this one. */
async function countOf(counter: typeof ofPassword): Promise<number> {
  const attempt = await counters.begin(counter);
  if (isFull(attempt)) throw new Error("the counter is full");
  onTestFinished(() => counters.clear([counter]));
  return attempt.count;
}

describe("a guess", () => {
  it("does not count for the account where it could not be counted for the client", async () => {
    const { limit } = limits({
      begin: (counter, others) =>
        counter.subject === guess.clientId
          ? Promise.reject(new Error("no connection"))
          : counters.begin(counter, others),
    });
    let judged = 0;
    for (let n = 0; n < 12; n += 1) {
      const outcome = limit(guess, async () => {
        judged += 1;
        return "right";
      });
      await expect(outcome).rejects.toThrow("no connection");
    }
    expect(judged).toBe(0);
    expect(await countOf(ofPassword)).toBe(1);
  });

  it("that was right is answered while its counts cannot be cleared", async () => {
    const { limit, proven } = limits({ clear: () => new Promise(() => undefined) });
    expect(await limit(guess, async () => "right")).toBe("right");
    await proven("u");
  });
});

it("a proof clears the counts of passwords and of codes", async () => {
  for (const counter of [ofPassword, ofCode]) await counters.begin(counter);
  await limits({}).proven("u");
  expect(await Promise.all([countOf(ofPassword), countOf(ofCode)])).toEqual([1, 1]);
});
