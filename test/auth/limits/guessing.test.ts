/** Guessing passwords and one-time codes: the limits, and how an account is unlocked. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { guessingRules } from "../../../src/auth/limits/guessing.ts";
import {
  type Answer,
  type AuthApi,
  authApi,
  backoffice,
  basic,
  internal,
  mobileApp,
} from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { guessesAt, oneByOne, repeat, statuses, times, untilChecked } from "./guessing-fixture.ts";

const { password: passwordRule, code: codeRule } = guessingRules;

describe.each(backends)("guessing on %s", (backend) => {
  let store: AuthStore;
  let server: AuthServer;
  let api: AuthApi;
  const plus = { clientId: "plus", clientSecret: "a+b%20c", grantTypes: ["auth"] };
  const env = withClients(plus);
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    server = await startAuthServer(backend, { env: { ...store.env, ...env } });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const { guess, guessCode, someone } = guessesAt(() => api);

  function expectLimited({ status, body, headers }: Answer, windowSeconds: number): void {
    expect({ status, body }).toMatchObject({ status: 429, body: { error: "slow_down" } });
    const seconds = Number(headers.get("retry-after"));
    expect(seconds).toBeGreaterThan(0);
    expect(seconds).toBeLessThanOrEqual(windowSeconds);
  }

  describe("at a password", () => {
    const { failures, windowSeconds } = passwordRule;

    test("ends after the failures of the rule, for the right password too, and says when to come back", async () => {
      const { id } = await someone();
      expect(statuses(await oneByOne(Array(failures), () => guess(id)))).toEqual(repeat(failures, 400));
      expectLimited(await guess(id), windowSeconds);
      expectLimited(await guess(id, "right horse"), windowSeconds);
    });

    test("does not outrun the count with 50 at once", async () => {
      const { id } = await someone();
      const responses = await times(50, () => guess(id));
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
    });

    test("is not made easier by spelling the phone in other ways", async () => {
      const { phone } = await someone();
      const [country, area, rest] = [phone.slice(0, 2), phone.slice(2, 5), phone.slice(5)];
      const spellings = [
        phone,
        `${country} (${area}) ${rest}`,
        `${country}-${area}-${rest}`,
        ` 1${area}${rest}`,
      ];
      const responses = await oneByOne(Array(failures).keys(), (n) => guess(spellings[n % 4] ?? ""));
      expect(statuses(responses)).toEqual(repeat(failures, 400));
      for (const spelling of spellings) expectLimited(await guess(spelling), windowSeconds);
    });

    test("is not made easier by the case of an e-mail address, in whatever alphabet", async () => {
      const email = `mick.${randomUUID()}@example.com`;
      await someone({ email });
      const upper = email.toUpperCase();
      // PostgreSQL takes the dotted capital and the Kelvin sign for capitals of i and k.
      const spellings = [
        email,
        upper,
        ` ${email}`,
        upper.replace("K", "\u212A"),
        upper.replace("I", "\u0130"),
      ];
      const responses = await oneByOne(spellings, (spelling) => guess(spelling, "right horse"));
      const right = spellings.filter((_, index) => responses[index]?.status === 200);
      expect(right).toEqual(expect.arrayContaining([email, upper]));
      await oneByOne(Array(failures), () => guess(email));
      for (const spelling of right) expectLimited(await guess(spelling, "right horse"), windowSeconds);
    });

    test("counts once for an identity, however it is named", async () => {
      const email = `${randomUUID()}@example.com`;
      const { id, phone } = await someone({ email });
      const responses = await oneByOne(Array(failures).keys(), (n) => guess([id, phone, email][n % 3] ?? ""));
      expect(statuses(responses)).toEqual(repeat(failures, 400));
      for (const name of [id, phone, email]) expectLimited(await guess(name, "right horse"), windowSeconds);
    });

    test("takes no id for another one that differs in case: a success with one's own clears nobody else's", async () => {
      const id = `carol-${randomUUID()}`;
      const mine = id.toUpperCase();
      for (const one of [id, mine]) {
        await api.newIdentity({ id: one });
        await api.call("setIdentityPassword", {
          as: internal,
          path: { id: one },
          json: { password: "right horse" },
        });
      }
      const responses = await oneByOne(Array(failures), async () => {
        const wrong = await guess(id);
        expect((await guess(mine, "right horse")).status).toBe(200);
        return wrong;
      });
      expect(statuses(responses)).toEqual(repeat(failures, 400));
      expectLimited(await guess(id, "right horse"), windowSeconds);
    });

    test("does not keep the owner from tokens in any other way", async () => {
      const { id, phone } = await someone();
      const { refresh_token } = await api.newPair(id);
      await times(2 * failures, () => guess(id));
      await api.newPair(id);
      expect((await api.refresh(refresh_token)).status).toBe(200);
      const code = await otpVerifier(server.origin).send(phone);
      expect((await guessCode(phone, code)).status).toBe(200);
    });

    test.each(["code", "proof"])("is unlocked by a %s from the owner's phone", async (way) => {
      const { id, phone } = await someone();
      await times(2 * failures, () => guess(id));
      expectLimited(await guess(id, "right horse"), windowSeconds);
      const verifier = otpVerifier(server.origin);
      const form =
        way === "code"
          ? { grant_type: "phone_otp", password: await verifier.send(phone) }
          : { grant_type: "phone_otp_token", otp_verification_token: await verifier.prove(phone) };
      expect((await api.token({ ...form, phone })).status).toBe(200);
      expect((await guess(id, "right horse")).status).toBe(200);
    });

    test("is unlocked by the operator, and nobody else", async () => {
      const { id, phone } = await someone();
      await times(2 * failures, () => guess(id));
      await times(2 * codeRule.failures, () => guessCode(phone));
      const unlock = (as: string) => api.call("clearIdentityAttempts", { as, path: { id } });
      expect((await unlock(mobileApp)).status).toBe(401);
      expectLimited(await guess(id, "right horse"), windowSeconds);
      expect((await unlock(internal)).status).toBe(204);
      expect((await guess(id, "right horse")).status).toBe(200);
      expect((await guessCode(phone)).status).toBe(400);
    });

    test.each(["X-Forwarded-For", "Forwarded", "X-Real-IP", "CF-Connecting-IP", "True-Client-IP"])(
      "is not made easier by %s",
      async (header) => {
        const { id } = await someone();
        const from = (n: number) =>
          untilChecked(() =>
            api.call("generateTokens", {
              as: backoffice,
              form: { grant_type: "password", username: id, password: `guess ${n}` },
              headers: { [header]: header === "Forwarded" ? `for=192.0.2.${n}` : `192.0.2.${n}` },
            }),
          );
        expect(statuses(await times(failures + 5, from))).toEqual([
          ...repeat(failures, 400),
          ...repeat(5, 429),
        ]);
      },
    );

    test("counts across clients and leaves other accounts and other grants alone", async () => {
      const { id } = await someone();
      const { id: other } = await someone();
      await times(failures / 2, () => guess(id, "wrong", backoffice));
      await times(failures / 2, () => guess(id, "wrong", mobileApp));
      expectLimited(await guess(id, "right horse", mobileApp), windowSeconds);
      expect((await guess(other, "right horse")).status).toBe(200);
      await api.newPair(id);
    });

    test("starts anew after a success", async () => {
      const { id } = await someone();
      for (let round = 0; round < 2; round += 1) {
        expect(statuses(await times(failures - 1, () => guess(id)))).toEqual(repeat(failures - 1, 400));
        expect((await guess(id, "right horse")).status).toBe(200);
      }
    });

    test("is limited for an account that does not exist as for one that does", async () => {
      const [known, unknown] = [(await someone()).id, randomUUID()];
      const responses = await oneByOne([known, unknown], async (username) => {
        await times(failures, () => guess(username));
        return guess(username);
      });
      for (const response of responses) expectLimited(response, windowSeconds);
    });

    test("does not count a request that could not have been right: no grant, no scope, no password", async () => {
      const { id } = await someone();
      const form = { grant_type: "password", username: id };
      await times(failures, () => api.token(form, backoffice));
      await times(failures, () => api.token({ ...form, password: "x", scope: "everything" }, backoffice));
      await times(failures, () => api.token({ ...form, password: "x" }, basic("plus", "a+b%20c")));
      expect((await guess(id, "right horse")).status).toBe(200);
    });

    if (backend === "PGlite") return;
    test("is counted by all processes together", async () => {
      const second = await startAuthServer(backend, { env: { ...store.env, ...env } });
      const { id } = await someone();
      const form = { grant_type: "password", username: id, password: "wrong" };
      const apis = [api, authApi(second.base)];
      const responses = await times(50, (n) =>
        untilChecked(() => (apis[n % 2] ?? api).token(form, backoffice)),
      );
      await second.stop();
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
    });

    test("locks the owner out until the window ends and no longer", async () => {
      const { id } = await someone();
      await times(3 * failures, () => guess(id));
      expectLimited(await guess(id, "right horse"), windowSeconds);
      // Let the window end.
      await store.read((query) =>
        query("update auth.attempts set expire = now() - interval '1 millisecond'"),
      );
      expect((await guess(id, "right horse")).status).toBe(200);
    });

    test("that was right is answered with tokens, though its count cannot be cleared", async () => {
      const { id } = await someone();
      await guess(id);
      await store.read(async (query) => {
        await query(
          "create function auth.fail() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$",
        );
        await query(
          "create trigger fail before delete on auth.attempts for each row execute function auth.fail()",
        );
      });
      const right = await guess(id, "right horse");
      await store.read((query) => query("drop trigger fail on auth.attempts"));
      expect(right.status, right.text).toBe(200);
      expect(await api.introspect(JSON.parse(right.text).access_token)).toMatchObject({ active: true });
      expect(server.logs()).toContain("What follows a guess could not be written");
    });
  });

  describe("at a one-time code", () => {
    const { failures, windowSeconds } = codeRule;

    test("ends after the failures of the rule, 50 at once and however the phone is spelled", async () => {
      const { phone } = await api.newIdentity();
      const spelled = `${phone.slice(0, 2)} ${phone.slice(2)}`;
      const responses = await times(50, (n) => guessCode(n % 2 === 0 ? phone : spelled));
      expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(50 - failures, 429)]);
      expectLimited(await guessCode(phone), windowSeconds);
      expectLimited(await guessCode(` ${phone.slice(1)}`), windowSeconds);
    });

    test("does not count while the verifier is away", async () => {
      const away = await startAuthServer("PGlite", { env: { OTP_VERIFIER_URL: "http://127.0.0.1:1" } });
      const other = authApi(away.base);
      const { phone } = await other.newIdentity();
      const form = { grant_type: "phone_otp", phone, password: "000000" };
      const responses = await oneByOne(Array(2 * failures), () => other.token(form));
      await away.stop();
      expect(statuses(responses)).toEqual(repeat(2 * failures, 503));
    });
  });
});
