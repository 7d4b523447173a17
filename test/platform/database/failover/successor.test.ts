/** When a primary that was promoted is used, as others may go on with the one before it. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { Primary } from "../../../../src/platform/database/failover/primary.ts";
import { Timelines } from "../../../../src/platform/database/failover/timelines.ts";
import { a, b, c, follower, primary, standby } from "../../../support/cluster-hosts.ts";
import { failed, full, hostsThatSay, lose, refused, slowMs } from "../../../support/saying-hosts.ts";
import { stopwatch } from "../../../support/stopwatch.ts";

describe("a search", () => {
  test.concurrent.each<[what: string, error: Error]>([
    ["is out of reach", failed("ETIMEDOUT")],
    ["is not connected to in time", failed("CONNECT_TIMEOUT")],
    ["has no way to it", failed("EHOSTUNREACH")],
    ["has no address", failed("ENOTFOUND")],
    ["takes nobody new, as it starts or shuts down", failed("57P03")],
    ["is full", full],
  ])("uses a successor only once others have left a primary before it that %s", async (_, error) => {
    const { hosts } = hostsThatSay([
      [a, [primary(1), error]],
      [b, [standby(), primary(2)]],
    ]);
    const started = hostsThatSay([
      [a, [error]],
      [b, [primary(2)]],
      [c, [follower(2, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    const from = performance.now();
    // What a process that has just started does not know is no better.
    expect(await Promise.all([hosts.locate(), started.hosts.locate()])).toEqual([b, b]);
    expect(performance.now() - from).toBeGreaterThan(3_000);
  });

  test("uses a successor at once where the primary before it has ended, or there was none", async () => {
    const took = stopwatch();
    const successor = hostsThatSay([
      [a, [refused]],
      [b, [primary(2)]],
    ]);
    const first = hostsThatSay([
      [a, [primary(1)]],
      [b, [failed("ETIMEDOUT")]],
    ]);
    expect(await successor.hosts.locate()).toBe(b);
    expect(await first.hosts.locate()).toBe(a);
    expect(took()).toBeLessThan(1_000);
  });

  test.concurrent("takes a refusal from before it began for no proof that the primary before has ended", async () => {
    // The refusal comes between the two searches, or during the second.
    await Promise.all(
      [slowMs, 0].map(async (pauseMs) => {
        const { hosts } = hostsThatSay([
          [a, [Promise.resolve(refused), undefined]],
          [b, [standby(), primary(2)]],
          [c, [standby(), follower(2, true)]],
        ]);
        await expect(hosts.locate()).rejects.toThrow("a:1 has not responded, b:2 is a standby");
        await delay(pauseMs);
        // The host may be back.
        const from = performance.now();
        expect(await hosts.locate()).toBe(b);
        expect(performance.now() - from).toBeGreaterThan(3_000);
      }),
    );
  });

  test("counts from the first word of a successor, and not from the search that finds it", async () => {
    const timelines = new Timelines();
    const heardAt = performance.now();
    timelines.record("x", 2);
    await delay(2_000);
    const { hosts } = hostsThatSay(
      [
        [a, [primary(1)]],
        [b, [primary(2)]],
      ],
      timelines,
    );
    const took = stopwatch();
    expect(await hosts.locate()).toBe(b);
    expect(performance.now() - heardAt).toBeGreaterThan(3_200);
    expect(took()).toBeLessThan(2_300);
  });

  test("finds one 3.25 seconds after its first word, though the primary before it is out of reach", async () => {
    let isCutOff = false;
    let says = standby();
    const hosts = new Primary({
      hosts: [a, b],
      timelines: new Timelines(),
      async readState(address) {
        if (address === b) return says;
        if (!isCutOff) return primary(1);
        await delay(2_000);
        throw failed("CONNECT_TIMEOUT");
      },
      logger: undefined,
    });
    expect(await hosts.locate()).toBe(a);
    isCutOff = true;
    lose(hosts, a, failed("CONNECT_TIMEOUT"));
    await expect(hosts.locate()).rejects.toThrow("a:1 has not responded, b:2 is a standby");
    says = primary(2);
    const took = stopwatch();
    expect(await hosts.locate()).toBe(b);
    expect(took()).toBeLessThan(3_400);
  });
});
