/** When a process may rely on a standby: the decisions, without a database. */
import { describe, expect, test } from "vitest";
import {
  type Beat,
  type Evidence,
  Leases,
  leaseMs,
  type Moment,
} from "../../../../src/platform/database/standbys/leases.ts";

const at = (ms: number, wallMs = ms): Moment => ({ monotonicMs: ms, wallMs });
const seen = (beat: number | null, changes: Partial<Evidence> = {}): Evidence => ({
  server: "s1",
  beat,
  isStandby: true,
  ...changes,
});

/** A beat that is confirmed at once. */
function beat(leases: Leases, ms: number): Beat {
  const sent = leases.begin(at(ms));
  leases.acknowledge(sent, at(ms));
  return sent;
}

/** A process that has been reading from s1 since the third beat, at 200 ms. */
function reading(): Leases {
  const leases = new Leases();
  beat(leases, 0);
  leases.observe(seen(1), at(10));
  expect(beat(leases, 100).servers).toEqual(["s1"]);
  leases.observe(seen(2), at(110));
  beat(leases, 200);
  leases.observe(seen(3), at(210));
  return leases;
}

describe("a standby is relied on", () => {
  test("once it shows a beat that was sent after one that names it was confirmed", () => {
    const leases = new Leases();
    beat(leases, 0);
    expect(leases.vouches(seen(1), at(10))).toBe(false);
    leases.observe(seen(1), at(10));
    beat(leases, 100);
    expect(leases.vouches(seen(2), at(110))).toBe(false);
    beat(leases, 200);
    expect(leases.vouches(seen(2), at(210))).toBe(false);
    expect(leases.vouches(seen(3), at(210))).toBe(true);
  });

  test("as long as the newest beat that it has was sent less than a lease ago", () => {
    const leases = reading();
    expect(leases.vouches(seen(3), at(200 + leaseMs - 1))).toBe(true);
    expect(leases.vouches(seen(3), at(200 + leaseMs))).toBe(false);
  });

  test("by the last confirmed beat where it already shows one that is not", () => {
    const leases = reading();
    leases.begin(at(300));
    expect(leases.vouches(seen(4), at(200 + leaseMs - 1))).toBe(true);
    expect(leases.vouches(seen(4), at(200 + leaseMs))).toBe(false);
  });
});

describe("a standby is not relied on", () => {
  test.each([
    ["has been promoted", seen(3, { isStandby: false })],
    ["is another server, or was restarted", seen(3, { server: "s2" })],
    ["is of another cluster, and has no beat of this process", seen(null)],
    ["has none that it could have", seen(0)],
  ])("that %s", (_, evidence) => {
    expect(leasesVouch(evidence)).toBe(false);
  });

  function leasesVouch(evidence: Evidence): boolean {
    return reading().vouches(evidence, at(220));
  }

  test("whose beats are never confirmed, however fresh they are there", () => {
    const leases = reading();
    for (let ms = 300; ms < 3_000; ms += 100) {
      const { number } = leases.begin(at(ms));
      leases.observe(seen(number), at(ms));
    }
    expect(leases.vouches(seen(30), at(3_000))).toBe(false);
  });

  test("while it is not named, and after that until it is named again and a later beat is confirmed", () => {
    const leases = reading();
    expect(beat(leases, 100 + 2 * leaseMs).servers).toEqual([]);
    const again = 200 + 2 * leaseMs;
    expect(leases.vouches(seen(4), at(again))).toBe(false);
    leases.observe(seen(4), at(again));
    expect(beat(leases, again).servers).toEqual(["s1"]);
    expect(leases.vouches(seen(5), at(again))).toBe(false);
    beat(leases, again + 100);
    expect(leases.vouches(seen(6), at(again + 100))).toBe(true);
  });
});

describe("clocks", () => {
  test("one that is set back lengthens no lease", () => {
    expect(reading().vouches(seen(3), at(200 + leaseMs, -3_600_000))).toBe(false);
  });

  test("one that is set ahead, as after a suspension that the other did not count, ends it", () => {
    expect(reading().vouches(seen(3), at(220, 3_600_000))).toBe(false);
  });
});
