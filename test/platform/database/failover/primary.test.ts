/** The search for the primary among several hosts, some of which say nothing. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { isDatabaseUnavailable } from "../../../../src/platform/base/database-errors.ts";
import type { ReplicationState } from "../../../../src/platform/database/connections/replication-state.ts";
import { Timelines } from "../../../../src/platform/database/failover/timelines.ts";
import { a, b, c, follower, primary, standby } from "../../../support/cluster-hosts.ts";
import {
  afterLateMs,
  full,
  hostsThatSay,
  lose,
  openTo,
  refused,
  type Saying,
  silentMs,
} from "../../../support/saying-hosts.ts";

describe.concurrent("a search", () => {
  test("is shared by those who need it at the same time, and what it found is kept", async () => {
    const { hosts, asked } = hostsThatSay([
      [a, [standby()]],
      [b, [primary(1)]],
    ]);
    expect(await Promise.all([hosts.locate(), hosts.locate()])).toEqual([b, b]);
    expect(await hosts.locate()).toBe(b);
    expect(asked).toEqual([a, b]);
  });

  test("does not wait for a host that says nothing, and asks it no third time meanwhile", async () => {
    const hanging = Promise.withResolvers<ReplicationState>();
    const { hosts, asked } = hostsThatSay([
      [a, [primary(1), hanging.promise]],
      [b, [standby(), standby(), standby(), primary(2)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    for (let round = 0; round < 2; round += 1)
      await expect(hosts.locate()).rejects.toThrow(
        "no host is the primary: a:1 has not responded, b:2 is a standby",
      );
    // The host before may be alive: another process may rely on it for some time.
    const from = performance.now();
    expect(await hosts.locate()).toBe(b);
    expect(asked).toEqual([a, b, a, b, a, b, b]);
    expect(performance.now() - from).toBeGreaterThan(3_000);
    hanging.resolve(primary(1));
  });

  test.each<[what: string, says: Error | undefined, told: string]>([
    ["says nothing", undefined, "(the database did not respond in time)"],
    ["is full", full, "(sorry, too many clients already)"],
  ])("does not find an old primary while a host that may be newer %s", async (_, says, told) => {
    const { hosts, lines } = hostsThatSay([
      [a, [primary(1)]],
      [b, [standby(), says]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    const error = await hosts.locate().catch((reason: unknown) => reason);
    expect(isDatabaseUnavailable(error)).toBe(true);
    expect(error).toMatchObject({
      message: `it is not certain which host is the primary: a:1 is the primary, b:2 ${told} and may be a newer primary`,
    });
    expect(lines.at(-1)).toBe(
      "A primary is not used, as a host that does not say what it is may be a newer one",
    );
  });

  test("does not go by what a host said of itself before it went away", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(2)]],
      [b, [primary(1), refused, undefined]],
      [c, [follower(2, true), follower(2, true), standby()]],
    ]);
    for (let round = 0; round < 2; round += 1) {
      expect(await hosts.locate()).toBe(a);
      lose(hosts, a);
    }
    await expect(hosts.locate()).rejects.toThrow(/b:2 .* and may be a newer primary/);
  });

  test.each<[when: string, says: Saying]>([
    ["at once", refused],
    ["too late for a search", Promise.resolve(refused)],
  ])(
    "finds no primary that was away by the word of a standby, while its successor takes its time: it refused %s",
    async (_, says) => {
      const { hosts } = hostsThatSay([
        [a, [primary(1), says, primary(1)]],
        [b, [standby(), standby(), Promise.resolve(primary(2))]],
        [c, [follower(1, true)]],
      ]);
      expect(await hosts.locate()).toBe(a);
      lose(hosts, a);
      await expect(hosts.locate()).rejects.toThrow("no host is the primary: a:1");
      await delay(afterLateMs);
      expect(await hosts.locate()).toBe(b);
    },
  );

  test("nor if it refused a connection, and was back before the search began", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1)]],
      [b, [standby(), Promise.resolve(primary(2))]],
      [c, [follower(1, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a, refused);
    expect(await hosts.locate()).toBe(b);
  });

  test("nor if it did so while a search was under way that found it", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1)]],
      [b, [standby(), undefined, Promise.resolve(primary(2))]],
      [c, [follower(1, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    const found = hosts.locate();
    await delay(1);
    lose(hosts, a, refused);
    expect(await found).toBe(a);
    expect(await hosts.locate()).toBe(b);
  });

  test("does not go by what a host said before it refused a connection", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1), full]],
      [b, [standby(), primary(2)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a, refused);
    await expect(hosts.locate()).rejects.toThrow(/a:1 .* and may be a newer primary/);
  });

  test("asks a host anew that failed too late for the one before", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1), refused, primary(1)]],
      [b, [standby(), undefined, primary(2)]],
      [c, [follower(1, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    await expect(hosts.locate()).rejects.toThrow("a:1 (connect ECONNREFUSED), b:2 has not responded");
    await delay(silentMs);
    expect(await hosts.locate()).toBe(b);
  });

  test("asks a host anew that was a standby when it responded too late for the one before", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1)]],
      [b, [Promise.resolve(standby()), primary(2)]],
      [c, [follower(1, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    await delay(afterLateMs);
    lose(hosts, a);
    expect(await hosts.locate()).toBe(b);
  });

  test("waits for all hosts where each takes its time, whoever has responded to the one before", async () => {
    const { hosts } = hostsThatSay([
      [a, [standby(), Promise.resolve(primary(1))]],
      [b, [Promise.resolve(standby())]],
    ]);
    await expect(hosts.locate()).rejects.toThrow("a:1 is a standby, b:2 has not responded");
    await delay(afterLateMs);
    expect(await hosts.locate()).toBe(a);
  });

  test("finds a primary that always takes its time by what it said to the one before", async () => {
    const slow = () =>
      hostsThatSay([
        [a, [standby()]],
        [b, [Promise.resolve(primary(1))]],
      ]);
    // Its word comes between the two searches, or during the second.
    await Promise.all(
      [afterLateMs, 0].map(async (pauseMs) => {
        const { hosts } = slow();
        await expect(hosts.locate()).rejects.toThrow("a:1 is a standby, b:2 has not responded");
        await delay(pauseMs);
        expect(await hosts.locate()).toBe(b);
        // Whether it still is one is another question.
        lose(hosts, b);
        await expect(hosts.locate()).rejects.toThrow("a:1 is a standby, b:2 has not responded");
      }),
    );
  });

  test("is not begun for a primary that has no connection left, unless there is none by which to hear of another", async () => {
    const { hosts, asked } = hostsThatSay([
      [a, [primary(1)]],
      [b, [standby(), primary(2)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    const open = await openTo(hosts, a);
    lose(hosts, a, full);
    expect(await hosts.locate()).toBe(a);
    expect(asked).toEqual([a, b]);
    expect(open.isClosed).toBe(false);
    await open.terminate();
    lose(hosts, a, full);
    expect(await hosts.locate()).toBe(b);
  });

  test("finds a primary that was away by the word of a standby, once nobody is left to respond", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1), refused, primary(1)]],
      [b, [standby(), standby(), undefined, Promise.resolve(primary(2))]],
      [c, [follower(1, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    await expect(hosts.locate()).rejects.toThrow("no host is the primary");
    expect(await hosts.locate()).toBe(a);
    // From then on a standby's word is enough again, and nobody waits for what the other host has to say.
    lose(hosts, a);
    expect(await hosts.locate()).toBe(a);
  });

  test("waits for a host that takes its time, where it may be newer", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1)]],
      [b, [Promise.resolve(primary(2))]],
    ]);
    expect(await hosts.locate()).toBe(b);
  });

  test("finds a primary that has never gone away beside one that has", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1)]],
      [b, [refused]],
      [c, [Object.assign(new Error("the database system is starting up"), { code: "57P03" })]],
    ]);
    expect(await hosts.locate()).toBe(a);
  });

  test("finds no primary older than one of which another search of the process has heard", async () => {
    const timelines = new Timelines();
    const push = hostsThatSay(
      [
        [a, [primary(1)]],
        [b, [refused, follower(2)]],
      ],
      timelines,
    );
    const auth = hostsThatSay([[a, [primary(1)]]], timelines);
    expect(await push.hosts.locate()).toBe(a);
    expect(await auth.hosts.locate()).toBe(a);
    lose(push.hosts, a);
    await expect(push.hosts.locate()).rejects.toThrow("a:1 writes an old timeline, b:2 is a standby");
    lose(auth.hosts, a);
    await expect(auth.hosts.locate()).rejects.toThrow("a:1 writes an old timeline");
  });

  test("follows a read-only transaction once in a while, as a primary may be set to them", () => {
    const { hosts } = hostsThatSay([[a, [primary(1)]]]);
    const readOnly = Object.assign(new Error("cannot execute INSERT in a read-only transaction"), {
      code: "25006",
    });
    expect(Array.from({ length: 100 }, () => hosts.isDoubtful(readOnly)).filter(Boolean)).toHaveLength(1);
  });

  test("that finds none means that the database is unavailable, and says what each host is", async () => {
    const { hosts } = hostsThatSay([
      [a, [refused]],
      [b, [standby()]],
      [c, [full]],
    ]);
    const error = await hosts.locate().catch((reason: unknown) => reason);
    expect(isDatabaseUnavailable(error)).toBe(true);
    expect(error).toMatchObject({
      message:
        "no host is the primary: a:1 (connect ECONNREFUSED), b:2 is a standby, c:3 (sorry, too many clients already)",
      cause: full,
    });
  });

  test("says what should not be, once for as long as it lasts", async () => {
    const { hosts, lines } = hostsThatSay([
      [a, [primary(1), primary(1), primary(1), standby()]],
      [b, [primary(2), refused, refused, primary(2)]],
    ]);
    expect(await hosts.locate()).toBe(b);
    const old = "A host takes writes on an old timeline, and is not used";
    const found = "The primary of the database was found";
    expect(lines).toEqual([old, found]);
    for (let round = 0; round < 2; round += 1) {
      lose(hosts, b);
      await expect(hosts.locate()).rejects.toThrow("a:1 writes an old timeline, b:2 (connect ECONNREFUSED)");
    }
    lose(hosts, b);
    expect(await hosts.locate()).toBe(b);
    expect(lines).toEqual([old, found]);
  });
});
