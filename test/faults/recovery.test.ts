/** When the faults take a deployment for recovered, and what makes a line red: what must not pass, and what may. */
import { expect, test } from "vitest";
import { type Attempt, Ledger } from "./ledger.ts";
import { objections, type Result } from "./play.ts";
import { recoveryOf, troublesSince } from "./recovery.ts";

/** The fault's end. */
const since = 100_000;

/** A request, by milliseconds after the fault's end. @param endedAt undefined while it is under way */
const attempt = (startedAt: number, endedAt: number | undefined, isRefused = false): Attempt => ({
  of: "request",
  startedAt: since + startedAt,
  endedAt: endedAt === undefined ? undefined : since + endedAt,
  isRefused,
});
const right = attempt(10, 20);
const recoveryAt = (ms: number, ...attempts: Attempt[]) => recoveryOf(attempts, since, since + ms);

test("all has recovered at once where nothing was refused since, and it is known after two seconds", () => {
  expect(recoveryAt(2_000, right)).toBeUndefined();
  expect(recoveryAt(2_001, right)).toBe(0);
});

test("the last refusal of a request that began since is the recovery", () => {
  const attempts = [right, attempt(100, 300, true), attempt(200, 1_500, true), attempt(1_600, 1_700)];
  expect(recoveryAt(3_500, ...attempts)).toBeUndefined();
  expect(recoveryAt(3_501, ...attempts)).toBe(1_500);
});

test("what ended before the fault did may have been refused, or have hung, for as long as it likes", () => {
  expect(recoveryAt(2_001, right, attempt(-500, -10, true), attempt(-30_000, -10))).toBe(0);
});

test("what was under way at the fault's end counts as begun then", () => {
  // However long it had hung before, it may end soon.
  expect(recoveryAt(2_001, right, attempt(-30_000, 1_900))).toBe(0);
  expect(recoveryAt(3_901, right, attempt(-30_000, 1_900, true))).toBe(1_900);
  for (const ms of [2_010, 5_000, 39_000])
    expect(recoveryAt(ms, right, attempt(-10, undefined))).toBeUndefined();
  for (const isRefused of [false, true]) {
    const hung = attempt(-10, 15_000, isRefused);
    expect(recoveryAt(17_000, right, hung)).toBeUndefined();
    expect(recoveryAt(17_001, right, hung)).toBe(15_000);
  }
});

test("nothing has recovered while everybody hangs in what began before the fault's end, though all are ready", () => {
  const hanging = Array.from({ length: 5 }, (_, n) => attempt(-100 * n - 1, undefined));
  const looks = (ms: number) =>
    Array.from(
      { length: ms / 200 },
      (_, n): Attempt => ({ ...attempt(n * 200, n * 200 + 5), of: "readiness" }),
    );
  for (const ms of [2_100, 20_000, 39_000]) expect(recoveryAt(ms, ...hanging, ...looks(ms))).toBeUndefined();
});

test("nothing has recovered while a look at readiness is refused, or hangs", () => {
  const look = (...args: Parameters<typeof attempt>): Attempt => ({ ...attempt(...args), of: "readiness" });
  expect(recoveryAt(5_000, right, look(200, 210, true))).toBe(210);
  expect(recoveryAt(2_100, right, look(50, undefined))).toBeUndefined();
});

test("nothing has recovered while a request that began since hangs", () => {
  const hanging = attempt(50, undefined);
  // It has not hung for two seconds yet, but nobody knows that it will not.
  expect(recoveryAt(2_010, right, hanging)).toBeUndefined();
  for (const ms of [2_100, 5_000, 39_000])
    expect(recoveryAt(ms, right, hanging, attempt(ms - 20, ms - 10))).toBeUndefined();
});

test("what hung counts until its end, whether it was answered then or given up", () => {
  for (const isRefused of [false, true]) {
    const hung = attempt(50, 15_050, isRefused);
    expect(recoveryAt(17_050, right, hung)).toBeUndefined();
    expect(recoveryAt(17_051, right, hung)).toBe(15_050);
  }
  expect(recoveryAt(2_100, right, attempt(50, 2_050))).toBe(0);
});

test("a request that is under way as always holds nothing up", () => {
  expect(recoveryAt(2_100, right, attempt(2_090, undefined))).toBe(0);
});

test("nothing has recovered as long as nothing was answered", () => {
  expect(recoveryAt(10_000)).toBeUndefined();
  expect(recoveryAt(10_000, attempt(-10, 5))).toBeUndefined();
  expect(recoveryAt(10_000, attempt(10, 20, true))).toBeUndefined();
  // A process that says it is ready has served nobody yet.
  expect(recoveryAt(10_000, { ...right, of: "readiness" })).toBeUndefined();
});

test("the ledger counts an attempt from its beginning on, and until it begins anew", async () => {
  const ledger = new Ledger();
  const response = Promise.withResolvers<number>();
  const asking = ledger.attempt(
    "request",
    () => response.promise,
    (status) => status === 503,
  );
  expect(ledger.attempts).toMatchObject([{ of: "request", endedAt: undefined, isRefused: false }]);
  response.resolve(503);
  expect(await asking).toBe(503);
  expect(ledger.attempts).toMatchObject([{ endedAt: expect.any(Number), isRefused: true }]);
  ledger.begin();
  expect(ledger.attempts).toEqual([]);
});

test("what kept everything from recovering is counted by its kind, and what ended before the fault did is not", () => {
  const attempts = [
    right,
    attempt(-500, -10, true),
    attempt(-10, 100, true),
    attempt(50, 90, true),
    attempt(-3_000, 2_100),
    attempt(100, undefined),
    { ...attempt(100, 200, true), of: "readiness" } as const,
    attempt(8_500, undefined),
  ];
  expect(troublesSince(attempts, since, since + 9_000)).toEqual([
    "2 × request refused",
    "1 × request late",
    "1 × request without a response",
    "1 × readiness refused",
  ]);
});

test("what is under way as the ledger begins anew is counted, so that nothing has recovered while it hangs", async () => {
  const ledger = new Ledger();
  const response = Promise.withResolvers<number>();
  const ask = (status: number | Promise<number>) =>
    ledger.attempt(
      "request",
      async () => status,
      (one) => one === 503,
    );
  await ask(503);
  const hanging = ask(response.promise);
  ledger.begin();
  expect(ledger.attempts).toMatchObject([{ endedAt: undefined }]);
  const faultEnd = performance.now();
  await ask(200);
  const recovery = () => recoveryOf(ledger.attempts, faultEnd, faultEnd + 10_000);
  expect(recovery()).toBeUndefined();
  response.resolve(503);
  await hanging;
  // It was refused since, and is counted once.
  expect(recovery()).toBeGreaterThan(0);
  expect(ledger.attempts.filter(({ isRefused }) => isRefused)).toHaveLength(1);
});

test("a line is red if its load acknowledged nothing, or it recovered late", () => {
  const good: Result = {
    fault: { name: "a", what: "b", short: true, concerns: "everybody", play: async () => undefined },
    isTimed: false,
    ...{ acknowledged: 1, refused: 0, lost: [], wrong: [], recoveryMs: 5_000, troubles: [] },
    bystander: { kind: "token", worst: 1, p99: 1, usual: 1 },
  };
  expect(objections(good)).toEqual([]);
  expect(objections({ ...good, acknowledged: 0 })).toEqual([
    "nothing was acknowledged, so that nothing could be lost",
  ]);
  const late = { ...good, recoveryMs: 5_001, troubles: ["2 × request late"] };
  expect(objections(late)).toEqual(["recovered after 5.0 s; 2 × request late"]);
});
