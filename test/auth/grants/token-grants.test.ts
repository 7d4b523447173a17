/** What each grant accepts and issues, and what happens to a client's tokens when it is no longer registered. */
import { randomUUID } from "node:crypto";
import { createLocalJWKSet, decodeJwt, type JSONWebKeySet, jwtVerify } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { developmentClients } from "../../../src/auth/client-settings.ts";
import {
  type Answer,
  type AuthApi,
  authApi,
  backoffice,
  basic,
  internal,
  mobileApp,
  newPhone,
  type TokenPair,
} from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const shop = {
  clientId: "shop",
  clientSecret: "shop-secret",
  grantTypes: ["auth", "refresh_token"],
  scopes: ["a"],
  clientSettings: { audiences: ["storefront", "shop", "warehouse"] },
  tokenSettings: { accessTokenSeconds: 77, refreshTokenSeconds: 7777 },
};
const asShop = basic("shop", "shop-secret");

function pairOf({ status, text, body }: Answer): TokenPair {
  expect(status, text).toBe(200);
  return body as TokenPair;
}

describe.each(backends)("grants on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend, { env: withClients(shop) });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  /** Calls the built-in OTP verifier. */
  async function verifier(path: string, body: object): Promise<Record<string, unknown>> {
    const response = await fetch(`${server.origin}/otp-verifier/v1/verifications${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    expect(response.ok).toBe(true);
    return JSON.parse(await response.text());
  }

  /** Sends a code to the phone and reads it. */
  async function codeFor(phone: string): Promise<string> {
    await verifier("", { phone });
    const query = new URLSearchParams({ phone });
    const response = await fetch(`${server.origin}/otp-verifier/v1/messages?${query}`);
    const { messages }: { messages: { code: string }[] } = JSON.parse(await response.text());
    return messages[0]?.code ?? "";
  }

  async function proofFor(phone: string): Promise<string> {
    const { otpVerificationToken } = await verifier("/confirm", { phone, code: await codeFor(phone) });
    return String(otpVerificationToken);
  }

  const refused = { status: 400, body: { error: "invalid_grant" } };
  const subjectOf = (response: Answer) => decodeJwt(pairOf(response).access_token).sub;

  test("a pair has what the client's settings say, signed by the key that is published", async () => {
    const { id } = await api.newIdentity();
    const before = Math.floor(Date.now() / 1000);
    const pair = await api.newPair(id, asShop);
    expect(pair).toMatchObject({ token_type: "Bearer", expires_in: 77, refresh_expires_in: 7777 });
    const { body: keys } = await api.call("getKeySet");
    const keySet = createLocalJWKSet(keys as JSONWebKeySet);
    const { payload, protectedHeader } = await jwtVerify(pair.access_token, keySet);
    expect(protectedHeader).toEqual({ alg: "RS256", typ: "at+jwt", kid: server.settings.signing.keyId });
    const { iat = 0, nbf, exp, jti, sid, ...claims } = payload;
    expect(claims).toEqual({
      iss: server.base,
      sub: id,
      aud: ["shop", "storefront", "warehouse"],
      client_id: "shop",
      scope: "a",
    });
    expect(sid).toBe(jti?.split(".")[0]);
    expect(iat).toBeGreaterThanOrEqual(before);
    expect({ nbf, exp }).toEqual({ nbf: iat, exp: iat + 77 });
    expect(await api.introspect(pair.access_token)).toEqual({
      active: true,
      ...claims,
      iat,
      nbf,
      exp,
      jti,
      userInfo: { userId: id },
      clientId: "shop",
      tokenType: "Bearer",
      token_type: "Bearer",
      username: id,
    });
  });

  test("no two tokens are the same", async () => {
    const { id } = await api.newIdentity();
    const pairs = await Promise.all(Array.from({ length: 20 }, () => api.newPair(id)));
    expect(new Set(pairs.flatMap((pair) => [pair.access_token, pair.refresh_token])).size).toBe(40);
    expect(new Set(pairs.map((pair) => decodeJwt(pair.access_token).jti)).size).toBe(20);
  });

  describe("password", () => {
    const logIn = (username: string, password = "correct horse") =>
      api.token({ grant_type: "password", username, password }, backoffice);
    const someone = { id: "", phone: "", email: `Ada.${randomUUID()}@example.com` };
    beforeAll(async () => {
      Object.assign(someone, await api.newIdentity({ email: someone.email }));
      const json = { password: "correct horse" };
      await api.call("setIdentityPassword", { as: internal, path: { id: someone.id }, json });
    });

    test("takes the phone, the e-mail address in any case, and the id for a username", async () => {
      const { id, phone, email } = someone;
      const spelled = `${phone.slice(0, 2)} (${phone.slice(2, 5)}) ${phone.slice(5)}`;
      const spellings = [phone, phone.slice(1), `00${phone.slice(1)}`, spelled];
      for (const username of [id, ...spellings, email, email.toUpperCase(), email.toLowerCase()]) {
        expect(subjectOf(await logIn(username)), username).toBe(id);
      }
    });

    test("takes no other spelling of an id, and nothing that only looks like a username", async () => {
      const { id, phone, email } = someone;
      const others = [
        id.toUpperCase(),
        `${id} `,
        phone.slice(2),
        `${email} `,
        `${email}.`,
        "%",
        "' or 1=1 --",
      ];
      for (const username of others) expect(await logIn(username), username).toMatchObject(refused);
    });

    test.each(["Correct horse", "correct horse ", "", "correct"])("%j is wrong", async (password) => {
      expect((await logIn(someone.id, password)).status).toBe(400);
    });

    test("is wrong for who has none", async () => {
      expect(await logIn((await api.newIdentity()).id)).toMatchObject(refused);
    });
  });

  describe("auth", () => {
    test("takes the id of an identity and nothing else", async () => {
      const { id, phone } = await api.newIdentity();
      const grant = (auth_id: string) => api.token({ grant_type: "auth", auth_id });
      expect(subjectOf(await grant(id))).toBe(id);
      for (const other of [phone, id.toUpperCase(), `${id} `, "nobody"]) {
        expect(await grant(other)).toMatchObject(refused);
      }
    });
  });

  describe("phone_otp", () => {
    const grant = (phone: string, password?: string, scope?: string) =>
      api.token({ grant_type: "phone_otp", phone, ...(password && { password }), ...(scope && { scope }) });

    test("takes the code that was sent, once, for the phone that it was sent to", async () => {
      const { id, phone } = await api.newIdentity();
      const { phone: another } = await api.newIdentity();
      const code = await codeFor(phone);
      expect(await grant(another, code)).toMatchObject(refused);
      expect(await grant(phone, code === "000000" ? "000001" : "000000")).toMatchObject(refused);
      expect(subjectOf(await grant(phone, code))).toBe(id);
      expect(await grant(phone, code)).toMatchObject(refused);
    });

    test("takes a phone that passed a check just now without a code, once", async () => {
      const { id, phone } = await api.newIdentity();
      expect(await grant(phone)).toMatchObject(refused);
      await proofFor(phone);
      expect(subjectOf(await grant(phone))).toBe(id);
      expect(await grant(phone)).toMatchObject(refused);
    });

    test("refuses a right code for a phone that no identity has, and what is no phone", async () => {
      const phone = newPhone();
      expect(await grant(phone, await codeFor(phone))).toMatchObject(refused);
      for (const text of ["x", "12025550123", "+1", "+12025550123 ext. 1"]) {
        expect(await grant(text, "123456")).toMatchObject(refused);
      }
    });

    test("costs no code where the scope is refused", async () => {
      const { phone } = await api.newIdentity();
      const code = await codeFor(phone);
      expect(await grant(phone, code, "everything")).toMatchObject({ body: { error: "invalid_scope" } });
      expect((await grant(phone, code, "profile")).status).toBe(200);
    });
  });

  describe("phone_otp_token", () => {
    const grant = (phone: string, otp_verification_token: string, scope?: string) =>
      api.token({ grant_type: "phone_otp_token", phone, otp_verification_token, ...(scope && { scope }) });

    test("takes a proof, once, for the phone that it proves, however that is spelled", async () => {
      const { id, phone } = await api.newIdentity();
      const { phone: another } = await api.newIdentity();
      const proof = await proofFor(phone);
      expect(await grant(another, proof)).toMatchObject(refused);
      const spelled = `${phone.slice(0, 2)} ${phone.slice(2, 5)} ${phone.slice(5)}`;
      expect(subjectOf(await grant(spelled, proof))).toBe(id);
      expect(await grant(phone, proof)).toMatchObject(refused);
    });

    test("works once, whether it is presented 50 times at once or again by another client", async () => {
      const { id, phone } = await api.newIdentity();
      const proof = await proofFor(phone);
      const responses = await Promise.all(Array.from({ length: 50 }, () => grant(phone, proof)));
      const [granted, ...more] = responses.filter(({ status }) => status === 200);
      expect(granted && subjectOf(granted)).toBe(id);
      expect(more).toEqual([]);
      const others = responses.filter(({ status }) => status !== 200);
      for (const response of others) expect(response).toMatchObject(refused);
    });

    test("is not used up where the scope is refused, or no identity has the phone yet", async () => {
      const phone = newPhone();
      const proof = await proofFor(phone);
      expect(await grant(phone, proof)).toMatchObject(refused);
      const { id } = await api.newIdentity({ phone });
      expect(await grant(phone, proof, "everything")).toMatchObject({ body: { error: "invalid_scope" } });
      expect(subjectOf(await grant(phone, proof))).toBe(id);
    });
  });

  test("a refresh token is good only for the client that it was issued to, and trying costs it nothing", async () => {
    const { id } = await api.newIdentity();
    const pair = await api.newPair(id, asShop);
    expect(await api.refresh(pair.refresh_token, mobileApp)).toMatchObject(refused);
    expect(await api.introspect(pair.access_token)).toMatchObject({ active: true });
    pairOf(await api.refresh(pair.refresh_token, asShop));
  });
});

describe.each(backends)("a client that is no longer listed, on %s", (backend) => {
  test("is disabled: it gets nothing, its tokens are inactive, and listing it again soon gives them back", async () => {
    const store = await createAuthStore(backend);
    const listed = JSON.stringify([...developmentClients, shop]);
    const unlisted = JSON.stringify(developmentClients);
    async function during<T>(clients: string, work: (api: AuthApi) => Promise<T>): Promise<T> {
      const server = await startAuthServer(backend, { env: { ...store.env, OAUTH_SERVER_CLIENTS: clients } });
      return work(authApi(server.base)).finally(() => server.stop());
    }
    const isActive = async (api: AuthApi, pair: TokenPair) =>
      (await api.introspect(pair.access_token)).active;

    const { id, gone, kept } = await during(listed, async (api) => {
      const identity = await api.newIdentity();
      const pairs = { gone: await api.newPair(identity.id, asShop), kept: await api.newPair(identity.id) };
      expect(await isActive(api, pairs.gone)).toBe(true);
      return { ...identity, ...pairs };
    });

    await during(unlisted, async (api) => {
      expect(await isActive(api, gone)).toBe(false);
      expect(await isActive(api, kept)).toBe(true);
      const refused = { status: 400, body: { error: "invalid_client" } };
      expect(await api.refresh(gone.refresh_token, asShop)).toMatchObject(refused);
      expect(await api.token({ grant_type: "auth", auth_id: id }, asShop)).toMatchObject(refused);
      const form = { token: gone.access_token };
      expect((await api.call("revokeToken", { as: asShop, form })).status).toBe(401);
      expect((await api.call("introspectToken", { as: asShop, form })).status).toBe(401);
    });

    await during(listed, async (api) => {
      expect(await isActive(api, gone)).toBe(true);
      pairOf(await api.refresh(gone.refresh_token, asShop));
      expect(await isActive(api, await api.newPair(id, asShop))).toBe(true);
      expect(await isActive(api, kept)).toBe(true);
    });
    await store.drop();
  });
});
