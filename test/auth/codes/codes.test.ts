/** What a session of a challenge takes: codes, tries, resends; and that nobody is told who exists. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { codesOn, phoneOf } from "./codes-lab.ts";

const wrong = (code: string) => (code === "000000" ? "000001" : "000000");

describe.each(backends)("one-time codes on %s", (backend) => {
  const lab = codesOn(backend);

  test("a right code is right again, until the exchange", async () => {
    const { presented, code, expiresInSeconds, resendAfterSeconds } = await lab.beginWithCode();
    expect([expiresInSeconds, resendAfterSeconds]).toEqual([600, 60]);
    expect(code).toMatch(/^\d{6}$/);
    expect(lab.sent).toMatchObject([{ phone: phoneOf(100), text: `Your code is ${code}. Never share it.` }]);
    for (let round = 0; round < 2; round += 1)
      expect(await lab.codes().check(presented, code)).toMatchObject({ kind: "right" });
    await lab.db().execute(sql`update auth.challenge_sessions set exchanged_at = now()`);
    expect(await lab.codes().check(presented, code)).toEqual({ kind: "invalid" });
  });

  test("a code is right as users type it: apart, in wide digits, in those of Arabic and Persian", async () => {
    const { presented, code } = await lab.beginWithCode();
    const from = (zero: number) => code.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)));
    const typed = [` ${code.slice(0, 3)} ${code.slice(3)}\n`, `${code.slice(0, 3)}–${code.slice(3)}`];
    for (const otp of [...typed, code.split("").join("-"), from(0xff10), from(0x660), from(0x6f0)])
      expect(await lab.codes().check(presented, otp), otp).toMatchObject({ kind: "right" });
  });

  test("the fifth wrong try ends the session, also of many at once, and another session goes on", async () => {
    const mine = await lab.beginWithCode();
    const stranger = await lab.begin();
    const guesses = Array.from({ length: 20 }, (_, index) =>
      lab.codes().check(stranger.presented, `9${String(index).padStart(5, "0")}`),
    );
    const kinds = (await Promise.all(guesses)).map(({ kind }) => kind).filter((kind) => kind !== "right");
    expect(kinds.filter((kind) => kind === "wrong").length).toBeLessThanOrEqual(4);
    for (let tries = 1; tries < 5; tries += 1) {
      const { kind, ...rest } = await lab.codes().check(mine.presented, wrong(mine.code));
      expect(kind).toBe("wrong");
      // How many tries are left is not said.
      expect(rest).toMatchObject({ session: { authSession: mine.authSession } });
      if (tries === 3)
        expect(await lab.codes().check(mine.presented, mine.code)).toMatchObject({ kind: "right" });
    }
    expect(await lab.codes().check(mine.presented, wrong(mine.code))).toEqual({ kind: "invalid" });
    expect(await lab.codes().check(mine.presented, mine.code)).toEqual({ kind: "invalid" });
    expect(await lab.codes().resend(mine.presented, undefined)).toEqual({ kind: "invalid" });
  });

  test("a code is wrong after five minutes, a session invalid after ten", async () => {
    const { presented, code } = await lab.beginWithCode();
    await lab.pass(301);
    expect(await lab.codes().check(presented, code)).toMatchObject({ kind: "wrong" });
    await lab.pass(300);
    expect(await lab.codes().check(presented, code)).toEqual({ kind: "invalid" });
  });

  test("another client or key has no such session", async () => {
    const { presented, code } = await lab.beginWithCode();
    for (const change of [{ clientId: "other" }, { keyThumbprint: "other" }, { authSession: "other" }]) {
      const theirs = { ...presented, ...change };
      expect(await lab.codes().check(theirs, code)).toEqual({ kind: "invalid" });
      expect(await lab.codes().resend(theirs, undefined)).toEqual({ kind: "invalid" });
    }
    expect(await lab.codes().check(presented, code)).toMatchObject({ kind: "right" });
  });

  test("three codes a session, a minute apart; a new one replaces the one before", async () => {
    const { presented, code } = await lab.beginWithCode();
    expect(await lab.codes().resend(presented, "198.51.100.7")).toMatchObject({
      kind: "limited",
      retryAfterSeconds: 60,
    });
    await lab.pass(61);
    const again = await Promise.all([1, 2].map(() => lab.codes().resend(presented, "198.51.100.7")));
    expect(again.map(({ kind }) => kind).sort()).toEqual(["limited", "sent"]);
    await lab.codes().stop();
    const second = lab.sent[1]?.code ?? "";
    if (second !== code) expect(await lab.codes().check(presented, code)).toMatchObject({ kind: "wrong" });
    expect(await lab.codes().check(presented, second)).toMatchObject({ kind: "right" });
    await lab.pass(61);
    const third = await lab.codes().resend(presented, "198.51.100.7");
    // No more are left: another one may be asked for once the session has expired.
    expect(third).toMatchObject({
      kind: "sent",
      session: { expiresInSeconds: 478, resendAfterSeconds: 478 },
    });
    await lab.pass(61);
    expect(await lab.codes().resend(presented, "198.51.100.7")).toMatchObject({ kind: "limited" });
    // Who taps too early is counted, and no more.
    expect(await lab.events()).toEqual([]);
    expect(await lab.counted("gatepost_codes_refused_total", { reason: "session" })).toBeGreaterThan(1);
  });

  test("a session for a phone that nobody has takes the same, sends nothing, and has no right code", async () => {
    const known = await lab.beginWithCode();
    const unknown = await lab.begin(phoneOf(101), false);
    const shape = (state: object) => Object.keys(state).sort();
    expect(shape(unknown)).toEqual(shape({ ...known, code: undefined }).filter((name) => name !== "code"));
    const guess = await lab.codes().check(unknown.presented, "123456");
    expect(guess).toMatchObject({
      kind: "wrong",
      session: { expiresInSeconds: 600, resendAfterSeconds: 60 },
    });
    await lab.pass(61);
    expect(await lab.codes().resend(unknown.presented, "198.51.100.7")).toMatchObject({ kind: "sent" });
    await lab.codes().stop();
    expect(lab.sent.map(({ phone }) => phone)).toEqual([phoneOf(100)]);
    for (let tries = 0; tries < 3; tries += 1) await lab.codes().check(unknown.presented, "123456");
    expect(await lab.codes().check(unknown.presented, "123456")).toEqual({ kind: "invalid" });
  });

  test("neither the rows nor the log have a session or a code that could be used", async () => {
    const { presented, code } = await lab.beginWithCode();
    const [row] = await rows(
      lab.db(),
      sql`select challenge_sessions::text as row from auth.challenge_sessions`,
    );
    expect(JSON.stringify(row)).not.toContain(presented.authSession);
    expect(`${JSON.stringify(row)} ${lab.log.text()}`).not.toMatch(new RegExp(`\\b${code}\\b`));
  });
});
