/** The search for the primary among several hosts, some of which say nothing. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { isDatabaseUnavailable } from "../../../src/platform/base/database-errors.ts";
import type { Standing } from "../../../src/platform/database/choose-primary.ts";
import { Connection } from "../../../src/platform/database/connection.ts";
import { Primary } from "../../../src/platform/database/primary.ts";
import type { Address } from "../../../src/platform/database/settings.ts";
import { Timelines } from "../../../src/platform/database/timelines.ts";
import { a, b, c, follower, primary, standby } from "../../support/cluster-hosts.ts";

describe("a search", () => {
  /**
   * Hosts that say this, one question after the other; the last is repeated. Those that say undefined have said nothing
   * after some time.
   */
  function hostsThatSay(says: readonly (readonly [Address, Saying[]])[], timelines = new Timelines()) {
    const asked: Address[] = [];
    const lines: string[] = [];
    const log = (_: object, message: string) => void lines.push(message);
    const sayings = new Map(says);
    async function ask(address: Address): Promise<Standing> {
      asked.push(address);
      const own = sayings.get(address) ?? [];
      const saying = own.length > 1 ? own.shift() : own[0];
      if (saying === undefined) await delay(silentMs);
      const said = saying instanceof Promise ? await delay(slowMs, await saying) : saying;
      if (said instanceof Error) throw said;
      if (said === undefined) throw late;
      return said;
    }
    const hosts = new Primary({
      hosts: says.map(([address]) => address),
      timelines,
      ask,
      logger: { info: log, warn: log },
    });
    return { hosts, asked, lines };
  }

  /** A connection to the address fails. */
  function lose(hosts: Primary, address: Address): void {
    const options = {
      ...{ address, client: {}, prepare: false, timeoutMs: 1, connectTimeoutMs: 1, checkTimeoutMs: 1 },
      check: async () => undefined,
    };
    hosts.closed(new Connection(options, () => undefined), refused);
  }

  const failed = (code: string) => Object.assign(new Error(`it failed with ${code}`), { code });
  const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  /** A promise is said slowly. */
  type Saying = Standing | Error | Promise<Standing | Error> | undefined;
  /** Longer than a search waits for a host that does not matter. */
  const slowMs = 700;
  const silentMs = 1_000;
  const late = Object.assign(new Error("the database did not respond in time"), {
    code: "CONNECTION_CLOSED",
  });
  const full = Object.assign(new Error("sorry, too many clients already"), { code: "53300" });

  test("is shared by those who need it at the same time, and what it found is kept", async () => {
    const { hosts, asked } = hostsThatSay([
      [a, [standby()]],
      [b, [primary(1)]],
    ]);
    expect(await Promise.all([hosts.locate(), hosts.locate()])).toEqual([b, b]);
    expect(await hosts.locate()).toBe(b);
    expect(asked).toEqual([a, b]);
  });

  test("does not wait for a host that says nothing, and asks it no second time meanwhile", async () => {
    const { hosts, asked } = hostsThatSay([
      [a, [primary(1), undefined]],
      [b, [standby(), standby(), primary(2)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    await expect(hosts.locate()).rejects.toThrow(
      "no host is the primary: a:1 has not responded, b:2 is a standby",
    );
    // The host before may be alive: another process may rely on it for some time.
    const from = performance.now();
    expect(await hosts.locate()).toBe(b);
    expect(performance.now() - from).toBeGreaterThan(3_000);
    expect(asked).toEqual([a, b, a, b, b]);
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

  test("finds no primary that was away by the word of a standby, while its successor takes its time", async () => {
    const { hosts } = hostsThatSay([
      [a, [primary(1), refused, primary(1)]],
      [b, [standby(), standby(), Promise.resolve(primary(2))]],
      [c, [follower(1, true)]],
    ]);
    expect(await hosts.locate()).toBe(a);
    lose(hosts, a);
    await expect(hosts.locate()).rejects.toThrow("no host is the primary: a:1 (connect ECONNREFUSED)");
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

  test.each<[what: string, error: Error]>([
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
    const from = performance.now();
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
    expect(performance.now() - from).toBeLessThan(1_000);
  });

  test("takes a refusal from before it began for no proof that the primary before has ended", async () => {
    const { hosts } = hostsThatSay([
      [a, [Promise.resolve(refused)]],
      [b, [standby(), primary(2)]],
    ]);
    await expect(hosts.locate()).rejects.toThrow("a:1 has not responded, b:2 is a standby");
    await delay(slowMs);
    // The host may be back.
    const from = performance.now();
    expect(await hosts.locate()).toBe(b);
    expect(performance.now() - from).toBeGreaterThan(3_000);
  });

  test("counts from the first word of a successor, and not from the search that finds it", async () => {
    const timelines = new Timelines();
    const heardAt = performance.now();
    timelines.hear("x", 2);
    await delay(2_000);
    const { hosts } = hostsThatSay(
      [
        [a, [primary(1)]],
        [b, [primary(2)]],
      ],
      timelines,
    );
    const from = performance.now();
    expect(await hosts.locate()).toBe(b);
    expect(performance.now() - heardAt).toBeGreaterThan(3_200);
    expect(performance.now() - from).toBeLessThan(2_300);
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
