/** Rounds of a janitor: no step keeps another one from its rows, and no error is lost. */
import { expect, test } from "vitest";
import { type JanitorStep, runRound } from "../../../src/platform/base/janitor.ts";
import { janitorRecord } from "../../support/janitor-record.ts";

type Kind = "shoes" | "hats";

const removes = (kind: Kind, rows: number, isDone = true): JanitorStep<Kind> => ({
  kinds: [kind],
  async run({ cleaned }) {
    cleaned(kind, rows);
    return isDone;
  },
});
const fails = (message: string): JanitorStep<Kind> => ({
  kinds: ["shoes"],
  run: () => Promise.reject(new Error(message)),
});

test("reports the rows of each kind, and which kinds have none left", async () => {
  const record = janitorRecord<Kind>();
  await runRound([removes("shoes", 3), removes("hats", 2, false)], { observer: record.observer });
  expect(record.rows).toEqual({ shoes: 3, hats: 2 });
  expect(record.caughtUp).toEqual(new Set(["shoes"]));
  expect(record.rounds()).toBe(1);
});

test("runs the steps after one that fails, and throws its error", async () => {
  const record = janitorRecord<Kind>();
  const round = runRound([fails("cut off"), removes("hats", 2)], { observer: record.observer });
  await expect(round).rejects.toThrow("cut off");
  expect(record.rows).toEqual({ hats: 2 });
  expect(record.rounds()).toBe(0);
});

test("throws every error if several steps fail", async () => {
  const round = runRound([fails("first"), removes("hats", 2), fails("second")]);
  await expect(round).rejects.toMatchObject({ errors: [new Error("first"), new Error("second")] });
});

test("ends after the step in which it is stopped, and throws what has failed until then", async () => {
  const stopping = new AbortController();
  const stops: JanitorStep<Kind> = {
    kinds: [],
    async run() {
      stopping.abort();
      return false;
    },
  };
  const record = janitorRecord<Kind>();
  const options = { observer: record.observer, stopping: stopping.signal };
  const round = runRound([fails("cut off"), stops, removes("hats", 2)], options);
  await expect(round).rejects.toThrow("cut off");
  expect(record.rows).toEqual({});
  expect(record.rounds()).toBe(0);
});
