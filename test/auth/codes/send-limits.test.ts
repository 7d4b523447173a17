/** The limits on sending: who pumps numbers gets no more than they allow, and hears the same whoever has the phone. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import type { CodeRequest } from "../../../src/auth/codes/code-request.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { codesOn, phoneOf } from "./codes-lab.ts";

const numberOf = (index: number) => `+49151${String(index).padStart(8, "0")}`;

describe.each(backends)("limits on sending on %s", (backend) => {
  const lab = codesOn(backend);

  /** How many of the requests may begin. */
  async function begun(requests: Iterable<Partial<CodeRequest>>): Promise<number> {
    let count = 0;
    for (const one of requests) if (!(await lab.codes().mayBegin(lab.request(one)))) count += 1;
    return count;
  }
  const limitsReached = async () =>
    (await lab.events()).map(([, data]) => JSON.stringify(data).replace(/.*CODES_LIMIT_(\w+).*/, "$1"));

  // One connection takes as long for a tenth of them.
  const count = backend === "PostgreSQL" ? 10_000 : 1_000;
  test(`${count} numbers of a prefix from a thousand addresses get sixty codes, of two processes`, async () => {
    const processes = [lab.codes(), backend === "PostgreSQL" ? await lab.another() : lab.codes()];
    let passed = 0;
    for (let wave = 0; wave < count; wave += 500) {
      const requests = Array.from({ length: 500 }, (_, index) => {
        const address = `203.0.${Math.floor((wave + index) / 10) % 4}.${(wave + index) % 250}`;
        return processes[index % 2]?.mayBegin(lab.request({ phone: phoneOf(wave + index), address }));
      });
      passed += (await Promise.all(requests)).filter((refusal) => refusal === undefined).length;
    }
    expect(passed).toBe(60);
    // What was refused as the limit was reached meanwhile counts for nothing else either.
    const counted = sql`select sum(points)::int as points from auth.attempts where key like any ('{code_client:%,code_phone:%}')`;
    expect(await rows(lab.db(), counted)).toEqual([{ points: 120 }]);
    // One event for the window, and nothing for each of the refusals.
    expect(await limitsReached()).toEqual(["PREFIX"]);
    expect(await lab.counted("gatepost_codes_refused_total", { reason: "prefix" })).toBeGreaterThan(
      count - 600,
    );
  });

  test("a phone gets one a minute, five a day from a network, ten in all", async () => {
    const day = async (address: string) => {
      let count = 0;
      for (let round = 0; round < 7; round += 1) {
        count += await begun([{ address }, { address }]);
        await lab.pass(61);
      }
      return count;
    };
    expect(await day("198.51.100.7")).toBe(5);
    // The same /24.
    expect(await begun([{ address: "198.51.100.99" }])).toBe(0);
    expect(await day("2001:db8::1")).toBe(5);
    expect(await begun([{ address: "203.0.113.1" }])).toBe(0);
    // Another phone is not affected by any of it.
    expect(await begun([{ phone: phoneOf(200), address: "198.51.100.7" }])).toBe(1);
    expect([...new Set(await limitsReached())].sort()).toEqual(["PHONE", "PHONE_NETWORK"]);
  });

  test("an address gets sixty an hour, its /64 twice as many, another caller its own", async () => {
    const from = (address: string, first: number) =>
      begun(
        Array.from({ length: 62 }, (_, index) => ({ address, phone: numberOf((first + index) * 10_000) })),
      );
    expect(await from("2001:db8::1", 0)).toBe(60);
    expect(await from("2001:db8::2", 100)).toBe(60);
    expect(await from("2001:db8::3", 200)).toBe(0);
    expect(await from("2001:db8:0:1::1", 300)).toBe(60);
    expect((await limitsReached()).sort()).toEqual(["ADDRESS", "ADDRESS", "ADDRESS", "NETWORK"]);
  });
});

describe("limits on sending that are set", () => {
  const lab = codesOn("PGlite", { OTP_CLIENT_LIMIT: "3" });

  test("a client gets as many an hour, and another client its own", async () => {
    const of = (clientId: string) =>
      Promise.all(
        [1, 2, 3, 4, 5].map((index) =>
          lab
            .codes()
            .mayBegin(lab.request({ clientId, phone: numberOf(index * 10_000), address: undefined })),
        ),
      );
    const passed = (await of("one")).filter((refusal) => refusal === undefined);
    expect(passed.length).toBe(3);
    await lab.pass(61);
    expect((await of("two")).filter((refusal) => refusal === undefined).length).toBe(3);
    await lab.pass(3_600);
    expect(await lab.codes().mayBegin(lab.request({ clientId: "one" }))).toBeUndefined();
  });

  test("a number that gets no codes is refused before anything counts or is sent", async () => {
    const denied = { kind: "denied" };
    // Jersey (+44), Jamaica (+1), a fixed line in Berlin, a premium number.
    for (const phone of ["+447700300000", "+18762101234", "+493012345678", "+4990012345678"])
      expect(await lab.codes().mayBegin(lab.request({ phone }))).toEqual(denied);
    expect(await lab.counted("gatepost_codes_refused_total", { reason: "number" })).toBe(4);
    expect(await lab.codes().mayBegin(lab.request())).toBeUndefined();
  });
});
