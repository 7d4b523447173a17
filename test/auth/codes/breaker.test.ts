/** The breaker of a prefix: opens where hardly anybody uses the codes, and closes once they do again. */
import { describe, expect, test } from "vitest";
import { backends } from "../../support/servers.ts";
import { codesOn } from "./codes-lab.ts";

const numberOf = (prefix: string, index: number) => `${prefix}${String(index).padStart(4, "0")}`;
const pumped = "+1202555";
const other = "+1303555";

describe.each(backends)("a breaker on %s", (backend) => {
  const lab = codesOn(backend);

  /** So many codes to numbers of the prefix, of which the first are used. */
  async function codes(prefix: string, count: number, used: number): Promise<void> {
    for (let index = 0; index < count; index += 1) {
      const phone = numberOf(prefix, index);
      if (index >= used) await lab.begin(phone);
      else {
        const { presented, code } = await lab.beginWithCode(phone);
        expect(await lab.codes().check(presented, code)).toMatchObject({ kind: "right" });
      }
    }
  }
  let next = 9_000;
  function mayBegin(prefix: string) {
    next += 1;
    return lab.codes().mayBegin(lab.request({ phone: numberOf(prefix, next) }));
  }

  test("opens below a fifth, leaves other prefixes alone, and closes by what it lets through", async () => {
    await codes(pumped, 50, 9);
    await codes(other, 50, 10);
    // Those that were not used may still be.
    expect(await mayBegin(pumped)).toBeUndefined();
    await lab.pass(301);
    expect(await mayBegin(pumped)).toEqual({ kind: "limited", retryAfterSeconds: 600 });
    expect(await mayBegin(other)).toBeUndefined();
    lab.chanceIs(0.05);
    await lab.pass(301);
    expect(await mayBegin(pumped)).toMatchObject({ kind: "limited" });
    await lab.pass(301);
    expect(await mayBegin(pumped)).toBeUndefined();
    lab.chanceIs(0.1);
    await lab.pass(61);
    expect(await mayBegin(pumped)).toEqual({ kind: "limited", retryAfterSeconds: 60 });
    // Of the newest fifty, ten are used now.
    await codes(pumped, 10, 10);
    expect(await mayBegin(pumped)).toBeUndefined();
    expect(await lab.events()).toEqual([
      ["breaker_opened", { prefix: pumped }],
      ["breaker_closed", { prefix: pumped }],
    ]);
    expect(await lab.counted("gatepost_codes_refused_total", { reason: "breaker" })).toBe(3);
  });
});
