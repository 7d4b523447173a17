/** The grants that check a phone: one-time codes, an OTP verifier that misbehaves, and proofs. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomUUID } from "node:crypto";
import { jwtVerify, SignJWT, UnsecuredJWT } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { developmentSecrets } from "../../../src/development/secrets.ts";
import { type Answer, type AuthApi, authApi, newPhone, type TokenPair } from "../../support/auth-api.ts";
import { type AuthServer, spawnAuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

type Claims = Record<string, unknown>;

function expectRefused({ status, body }: Answer): void {
  expect({ status, body }).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
}
function pairOf({ status, text, body }: Answer): TokenPair {
  expect(status, text).toBe(200);
  return body as TokenPair;
}

describe.each(backends)("grants that check a phone, on %s", (backend) => {
  let store: AuthStore;
  let clock: MovableClock;
  let server: AuthServer;
  let api: AuthApi;
  let otp: ReturnType<typeof otpVerifier>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    clock = movableClock();
    server = await startAuthServer(backend, { env: store.env, clock });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    otp = otpVerifier(server.origin);
  });

  const withCode = (phone: string, password?: string) =>
    api.token({ grant_type: "phone_otp", phone, ...(password !== undefined && { password }) });

  describe("phone_otp", () => {
    test("a code works once, for the phone that it was sent to, in any spelling of the number", async () => {
      const [{ phone, id }, other] = [await api.newIdentity(), await api.newIdentity()];
      const code = await otp.send(phone);
      expectRefused(await withCode(other.phone, code));
      const { access_token } = pairOf(await withCode(phone.replace(/^\+1(\d{3})/, "+1 ($1) "), code));
      expect(await api.introspect(access_token)).toMatchObject({ sub: id });
      expectRefused(await withCode(phone, code));
    });

    test("without a code, a check that was passed just now counts, once", async () => {
      const { phone } = await api.newIdentity();
      expectRefused(await withCode(phone));
      await otp.prove(phone);
      pairOf(await withCode(phone));
      expectRefused(await withCode(phone));
    });

    test("a wrong code is refused, and the right one still works", async () => {
      const { phone } = await api.newIdentity();
      const code = await otp.send(phone);
      for (const wrong of [
        code === "000000" ? "000001" : "000000",
        code.slice(1),
        `${code}0`,
        "x".repeat(128),
      ]) {
        expectRefused(await withCode(phone, wrong));
      }
      pairOf(await withCode(phone, code));
    });

    test("a code that has expired, or was replaced by a newer one, is refused", async () => {
      const { phone } = await api.newIdentity();
      const [first, second] = [await otp.send(phone), await otp.send(phone)];
      if (first !== second) expectRefused(await withCode(phone, first));
      clock.move(300);
      expectRefused(await withCode(phone, second));
    });

    test("one code presented twenty times at once gives one pair", async () => {
      // In a process of its own: twenty callers in this one would take the verifier's two seconds away.
      const own = await spawnAuthServer(backend);
      try {
        const { newIdentity, token } = authApi(own.base);
        const { phone } = await newIdentity();
        const code = await otpVerifier(own.origin).send(phone);
        const present = () => token({ grant_type: "phone_otp", phone, password: code });
        const responses = await Promise.all(Array.from({ length: 20 }, present));
        const count = (wanted: number) => responses.filter(({ status }) => status === wanted).length;
        // On a busy machine the verifier may be late, which is a 503 whether or not it took the code.
        const late = count(503);
        expect([1, late > 0 ? 0 : 1]).toContain(count(200));
        // The others are wrong by then, or beyond the limit. A success clears the attempts, so any number may be either.
        expect(count(200) + count(400) + count(429) + late).toBe(20);
      } finally {
        await own.stop();
      }
    });
  });

  describe("phone_otp_token", () => {
    const key = () => createPrivateKey(developmentSecrets(store.env["DATA_DIR"] ?? "").otp.privateKey);
    const now = () => Math.floor(clock.now() / 1000);

    /** A proof as the verifier makes it, with these claims replaced; undefined omits a claim. */
    function prove(phone: string, claims: Claims = {}, signer = key(), alg = "RS256", typ?: string) {
      const payload = {
        iss: "otp-verifier",
        sub: phone,
        phone_number: phone,
        jti: randomUUID(),
        iat: now(),
        exp: now() + 300,
        ...claims,
      };
      return new SignJWT(payload).setProtectedHeader({ alg, ...(typ !== undefined && { typ }) }).sign(signer);
    }
    const redeem = (phone: string, otp_verification_token: string) =>
      api.token({ grant_type: "phone_otp_token", phone, otp_verification_token });

    test("a proof works once, in any spelling of the phone number", async () => {
      const { phone, id } = await api.newIdentity();
      const proof = await prove(phone);
      const { access_token } = pairOf(await redeem(phone.replace("+1", "+1 "), proof));
      expect(await api.introspect(access_token)).toMatchObject({ sub: id });
      expectRefused(await redeem(phone, proof));
    });

    test("a jti works once, whatever else the token says, and another jti of the same phone works", async () => {
      const { phone } = await api.newIdentity();
      const jti = randomUUID();
      pairOf(await redeem(phone, await prove(phone, { jti })));
      expectRefused(await redeem(phone, await prove(phone, { jti, exp: now() + 400 })));
      const other = await api.newIdentity();
      expectRefused(await redeem(other.phone, await prove(other.phone, { jti })));
      pairOf(await redeem(phone, await prove(phone)));
    });

    test("an attempt that fails does not use the proof up", async () => {
      const phone = newPhone();
      const proof = await prove(phone);
      expectRefused(await redeem((await api.newIdentity()).phone, proof));
      expectRefused(await redeem(phone, proof));
      await api.newIdentity({ phone });
      pairOf(await redeem(phone, proof));
    });

    test("the phone is phone_number, else phone, else sub", async () => {
      const { phone } = await api.newIdentity();
      const none = { phone_number: undefined, sub: undefined };
      pairOf(await redeem(phone, await prove(phone, { ...none, phone })));
      pairOf(await redeem(phone, await prove(phone, { ...none, phone, sub: "somebody" })));
      expectRefused(await redeem(phone, await prove(phone, { phone: newPhone(), phone_number: undefined })));
      expectRefused(await redeem(phone, await prove(phone, { phone: [phone], phone_number: undefined })));
      expectRefused(await redeem(phone, await prove(phone, { phone, phone_number: newPhone() })));
      pairOf(await redeem(phone, await prove(phone, { sub: "somebody" })));
      pairOf(await redeem(phone, await prove(phone, { phone_number: undefined })));
      expectRefused(await redeem(phone, await prove(phone, { phone_number: newPhone() })));
      expectRefused(await redeem(phone, await prove(phone, { phone_number: undefined, sub: newPhone() })));
      expectRefused(await redeem(phone, await prove(phone, { phone_number: undefined, sub: undefined })));
      for (const phone_number of [null, [phone], 1, "", { phone }]) {
        expectRefused(await redeem(phone, await prove(phone, { phone_number })));
      }
    });

    test("the phone is the same in any spelling, also without the plus sign", async () => {
      const { phone } = await api.newIdentity();
      const pasted = [`\u202a${phone}\u202c`, ` ${phone}\n`, phone.replace("+", "\uff0b")];
      for (const spelled of [phone.slice(1), `00${phone.slice(1)}`, phone.replace("+1", "+1 "), ...pasted]) {
        pairOf(await redeem(phone, await prove(phone, { phone_number: spelled })));
        pairOf(await redeem(spelled, await prove(phone, { phone_number: undefined, sub: spelled })));
      }
    });

    test("a proof without jti works once, also in another signature, and not for another phone", async () => {
      const { phone } = await api.newIdentity();
      const proof = await prove(phone, { jti: undefined });
      pairOf(await redeem(phone, proof));
      expectRefused(await redeem(phone, proof));
      // Of an ECDSA signature (r, s) anybody can make (r, n - s), which is valid too.
      const [signed = "", signature = ""] = proof.split(/\.(?=[^.]*$)/);
      const bytes = Buffer.from(signature, "base64url");
      const order = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;
      const s = order - BigInt(`0x${bytes.toString("hex", 32)}`);
      bytes.write(s.toString(16).padStart(64, "0"), 32, "hex");
      const other = `${signed}.${bytes.toString("base64url")}`;
      const verifies = await jwtVerify(other, createPublicKey(key()), { currentDate: new Date(clock.now()) });
      expect(verifies.payload).toMatchObject({ phone_number: phone });
      expectRefused(await redeem(phone, other));
      clock.move(1);
      pairOf(await redeem(phone, await prove(phone, { jti: undefined })));
    });

    test("a proof without jti that is presented twenty times at once works once", async () => {
      const { phone } = await api.newIdentity();
      const proof = await prove(phone, { jti: undefined });
      const answers = await Promise.all(Array.from({ length: 20 }, () => redeem(phone, proof)));
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
      expect(answers.filter(({ status }) => status === 400)).toHaveLength(19);
    });

    test("a proof is refused once it is older than ten minutes, and is not redeemed twice at its end", async () => {
      const { phone } = await api.newIdentity();
      const long = { iat: now(), exp: now() + 3600 };
      const [first, second] = [await prove(phone, long), await prove(phone, long)];
      clock.move(600);
      pairOf(await redeem(phone, first));
      expectRefused(await redeem(phone, first));
      clock.move(1);
      expectRefused(await redeem(phone, second));
    });

    test("of a proof without iat the age is unknown: it is taken in the last ten minutes of its life", async () => {
      const { phone } = await api.newIdentity();
      const day = await prove(phone, { iat: undefined, exp: now() + 86_400 });
      expectRefused(await redeem(phone, day));
      clock.move(86_400 - 600);
      pairOf(await redeem(phone, day));
    });

    test.each<[string, () => Claims]>([
      ["of another issuer", () => ({ iss: "otp-verifier/" })],
      ["of no issuer", () => ({ iss: undefined })],
      ["without exp and iat", () => ({ exp: undefined, iat: undefined })],
      ["with an empty jti", () => ({ jti: "" })],
      ["whose jti is a number", () => ({ jti: 7 })],
      ["that has just expired", () => ({ exp: now() })],
      ["that is older than ten minutes", () => ({ iat: now() - 601 })],
      ["that is older than ten minutes, without exp", () => ({ iat: now() - 601, exp: undefined })],
      ["that lives longer than ten minutes, without iat", () => ({ iat: undefined, exp: now() + 601 })],
      ["whose iat is text", () => ({ iat: String(now()) })],
      ["issued in the future, beyond the skew", () => ({ iat: now() + 31 })],
      ["not valid before later, beyond the skew", () => ({ nbf: now() + 31 })],
      ["that expires within this second, and now", () => ({ exp: clock.now() / 1000 })],
      ["for an audience", () => ({ aud: "auth" })],
      ["for audiences", () => ({ aud: ["auth", "billing"] })],
      ["for a list of no audiences", () => ({ aud: [] })],
      ["for an audience that is null", () => ({ aud: null })],
      ["of a phone that is not verified", () => ({ phone_number_verified: false })],
      ["of a phone that is verified in words", () => ({ phone_number_verified: "true" })],
      ["of a phone of which nobody knows whether it is verified", () => ({ phone_number_verified: null })],
    ])("a proof %s is refused", async (_, claims) => {
      const { phone } = await api.newIdentity();
      expectRefused(await redeem(phone, await prove(phone, claims())));
    });

    test.each<[string, () => Claims]>([
      ["that lives an hour, ten minutes of it past", () => ({ iat: now() - 600, exp: now() + 3000 })],
      ["without exp", () => ({ exp: undefined })],
      ["without jti", () => ({ jti: undefined })],
      ["without iat", () => ({ iat: undefined })],
      ["from a clock that is ahead within the skew", () => ({ iat: now() + 30, nbf: now() + 30 })],
      ["in its last second", () => ({ exp: now() + 1 })],
      ["whose times have fractions", () => ({ iat: now() - 0.5, nbf: now() - 0.5, exp: now() + 100.5 })],
      ["of a phone that is verified", () => ({ phone_number_verified: true })],
    ])("a proof %s is taken", async (_, claims) => {
      const { phone } = await api.newIdentity();
      pairOf(await redeem(phone, await prove(phone, claims())));
    });

    test("a proof that another key has signed, or none, is refused", async () => {
      const { phone } = await api.newIdentity();
      const publicPem = createPublicKey(key()).export({ type: "spki", format: "pem" }).toString();
      const claims = { iss: "otp-verifier", phone_number: phone, jti: randomUUID(), exp: now() + 300 };
      const proof = await prove(phone);
      const [header = "", payload = "", signature = ""] = proof.split(".");
      const none = new UnsecuredJWT(claims).encode();
      for (const forged of [
        await prove(phone, {}, generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey, "ES256"),
        await prove(phone, {}, generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey, "RS256"),
        await new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(Buffer.from(publicPem)),
        await new SignJWT(claims).setProtectedHeader({ alg: "HS256" }).sign(Buffer.alloc(32)),
        none,
        `${none}${signature}`,
        `${header}.${payload}.`,
        `${header}.${payload}`,
        `${proof}.`,
        `${proof}=`,
        `${header}.${payload}.${Buffer.alloc(256).toString("base64url")}`,
        `${header}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.${signature}`,
        (await api.newPair((await api.newIdentity()).id)).access_token,
      ]) {
        expectRefused(await redeem(phone, forged));
      }
      pairOf(await redeem(phone, proof));
    });

    test.each(["at+jwt", "application/at+jwt", "logout+jwt", "secevent+jwt", "dpop+jwt", "JWTs", ""])(
      "a token of another type is no proof, also if the right key signed it: %j",
      async (typ) => {
        const { phone } = await api.newIdentity();
        expectRefused(await redeem(phone, await prove(phone, {}, key(), "RS256", typ)));
      },
    );

    test.each(["JWT", "jwt", "application/jwt", undefined])("a proof may be of the type %s", async (typ) => {
      const { phone } = await api.newIdentity();
      pairOf(await redeem(phone, await prove(phone, {}, key(), "RS256", typ)));
    });

    test("a proof is no access token", async () => {
      const { phone } = await api.newIdentity();
      expect(await api.introspect(await prove(phone))).toEqual({ active: false });
    });
  });
});
