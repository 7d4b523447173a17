/** How often a user may save devices. */
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Devices } from "../../../src/push/devices/devices.ts";
import { limitSaves, saveRateOfProcess } from "../../../src/push/devices/save-rate.ts";
import { movableClock } from "../../support/movable-clock.ts";

const device = { token: "t", expiration: new Date("2100-01-01"), utcOffset: undefined };

/** The limit, around devices of which only the calls matter. */
function limited(perMinute: number) {
  const clock = movableClock();
  const saved: string[] = [];
  const devices: Devices = {
    save: async (userId) => void saved.push(userId),
    remove: async () => undefined,
    removeAll: async () => undefined,
  };
  const { save } = limitSaves(devices, saveRateOfProcess(perMinute, clock));
  /** Saves a device. @returns seconds to wait; 0 if it was saved */
  async function wait(userId = "anna"): Promise<number> {
    const before = saved.length;
    const error: unknown = await save(userId, device).catch((thrown: unknown) => thrown);
    if (error === undefined) return saved.length - before === 1 ? 0 : Number.NaN;
    expect(error).toMatchObject({ kind: { status: 429, code: "too_many_requests" } });
    expect(saved.length).toBe(before);
    return Object(error).retryAfterSeconds;
  }
  async function savedOf(times: number, userId?: string): Promise<number> {
    let count = 0;
    for (let time = 0; time < times; time += 1) if ((await wait(userId)) === 0) count += 1;
    return count;
  }
  return { clock, wait, savedOf };
}

test.each([1, 7, 60, 1_000])("%i a minute are saved at once, and not one more", async (perMinute) => {
  const { savedOf, clock } = limited(perMinute);
  expect(await savedOf(perMinute + 3)).toBe(perMinute);
  clock.move(60);
  expect(await savedOf(perMinute + 3)).toBe(perMinute);
});

test("who waits as long as is said saves again, and no sooner", async () => {
  const { wait, savedOf, clock } = limited(6);
  await savedOf(6);
  expect(await wait()).toBe(10);
  clock.move(9);
  expect(await wait()).toBe(1);
  clock.move(1);
  expect([await wait(), await wait()]).toEqual([0, 10]);
});

test("users are counted apart", async () => {
  const { wait, savedOf } = limited(2);
  await savedOf(3, "anna");
  expect([await wait("anna"), await wait("boris")]).toEqual([30, 0]);
});

test("a clock that is set back locks nobody out", async () => {
  const { wait, savedOf, clock } = limited(2);
  await savedOf(3);
  clock.move(-3600);
  expect(await wait()).toBe(0);
});

test("in no minute more than twice as many, in an hour no more than the rate and a burst, however calls come", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 20 }),
      fc.array(fc.nat({ max: 40 }), { maxLength: 60 }),
      async (perMinute, pauses) => {
        const { clock, wait } = limited(perMinute);
        const times: number[] = [];
        for (const pause of pauses) {
          clock.move(pause);
          if ((await wait()) === 0) times.push(clock.now());
        }
        for (const [index, from] of times.entries()) {
          for (const [further, to] of times.slice(index).entries()) {
            expect(further + 1).toBeLessThanOrEqual(perMinute + ((to - from) / 60_000) * perMinute + 0.001);
          }
        }
      },
    ),
    { numRuns: 50 },
  );
});
