/** The breaker of a prefix: opens where hardly anybody uses the codes, and closes once they do again. */
import { describe, expect, test } from "vitest";
import { cleanUp } from "../../../src/auth/janitor.ts";
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
    await lab.pass(301);
    expect(await mayBegin(pumped)).toMatchObject({ kind: "limited" });
    // One in ten minutes, however many ask.
    for (let trials = 0; trials < 3; trials += 1) {
      await lab.pass(601);
      const asked = await Promise.all(Array.from({ length: 20 }, () => mayBegin(pumped)));
      expect(asked.filter((refusal) => refusal === undefined).length).toBe(1);
      expect(asked).toContainEqual({ kind: "limited", retryAfterSeconds: 600 });
      await codes(pumped, 1, 1);
    }
    // Three that it let through were used.
    for (let asked = 0; asked < 2; asked += 1) expect(await mayBegin(pumped)).toBeUndefined();
    expect(await lab.events()).toEqual([["breaker_opened", { prefix: pumped.slice(1) }]]);
  });

  test("judges the newest codes, whatever became of those before them", async () => {
    await codes(pumped, 12, 12);
    await lab.pass(301);
    await codes(pumped, 50, 0);
    await lab.pass(301);
    expect(await mayBegin(pumped)).toMatchObject({ kind: "limited" });
  });

  test("what a stranger did an hour ago opens none, and one that is open closes after an hour without codes", async () => {
    await codes(pumped, 50, 0);
    await lab.pass(3_601);
    expect(await mayBegin(pumped)).toBeUndefined();
    await codes(pumped, 50, 0);
    await lab.pass(301);
    expect(await mayBegin(pumped)).toMatchObject({ kind: "limited" });
    await cleanUp(lab.db());
    expect(await mayBegin(pumped)).toMatchObject({ kind: "limited" });
    await lab.pass(3_601);
    await cleanUp(lab.db());
    for (let asked = 0; asked < 2; asked += 1) expect(await mayBegin(pumped)).toBeUndefined();
  });
});
