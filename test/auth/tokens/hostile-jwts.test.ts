/**
 * Tokens that must be refused: each hostile kind of JWT, as an access token at introspection and as an OTP proof at
 * grant_type=phone_otp_token. That a genuine token is accepted is checked first, so that each hostile one is
 * refused for its own fault.
 */
import {
  createPrivateKey,
  generateKeyPairSync,
  type KeyObject,
  randomBytes,
  randomUUID,
  sign,
} from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { decodeJwt } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { type Answer, type AuthApi, authApi, internal, newPhone } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { base64url, compact, type Forge, forgedJwts, type Genuine, genuinely } from "./forged-jwts.ts";

function rsaPair() {
  return generateKeyPairSync("rsa", { modulusLength: 2048 });
}

function pem(key: KeyObject): string {
  return key.export({ type: key.type === "private" ? "pkcs8" : "spki", format: "pem" }).toString();
}

/** Records requests to a listener whose address the hostile tokens contain. */
const visits: string[] = [];
const listener = createServer((request, response) => {
  visits.push(request.url ?? "");
  response.end("{}");
});
let listenerUrl = "";
beforeAll(async () => {
  await once(listener.listen(0, "127.0.0.1"), "listening");
  listenerUrl = `http://127.0.0.1:${(listener.address() as AddressInfo).port}`;
});
suiteCleanup().defer(() => void listener.close());

const seconds = () => Math.floor(Date.now() / 1000);

/** The response without what differs between any two requests. */
function visible({ status, text, headers }: Answer) {
  const { "x-request-id": _id, date: _date, ...rest } = Object.fromEntries(headers);
  return { status, text, headers: rest };
}

describe("as an access token", () => {
  const published = rsaPair();
  let server: AuthServer;
  let api: AuthApi;
  let genuine: Genuine;
  let refreshToken: string;
  let garbage: ReturnType<typeof visible>;
  const introspect = (token: string) => api.call("introspectToken", { as: internal, form: { token } });

  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const { n = "", e = "" } = published.publicKey.export({ format: "jwk" });
    const keys = [{ kty: "RSA", kid: "published", n, e }];
    server = await startAuthServer("PGlite", { env: { RSA_PUBLISHED_KEYS: JSON.stringify({ keys }) } });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    const pair = await api.newPair((await api.newIdentity()).id);
    refreshToken = pair.refresh_token;
    const claims = decodeJwt(pair.access_token);
    const authorization = claims.jti?.split(".")[0];
    const { privateKey, keyId: kid } = server.settings.signing;
    genuine = {
      privateKey: createPrivateKey(privateKey),
      header: { alg: "RS256", typ: "at+jwt", kid },
      claims: () => ({ ...claims, jti: `${authorization}.${randomBytes(16).toString("base64url")}` }),
      listener: listenerUrl,
    };
    garbage = visible(await introspect("garbage"));
  });

  async function expectInactive(token: string): Promise<void> {
    const response = visible(await introspect(token));
    expect(response).toMatchObject({ status: 200, text: '{"active":false}' });
    expect(response).toEqual(garbage);
  }

  test("a good one is active, also under the published key", async () => {
    expect(await api.introspect(genuinely(genuine))).toMatchObject({ active: true });
    const other = { ...genuine, privateKey: published.privateKey };
    expect(await api.introspect(genuinely(other, { header: { kid: "published" } }))).toMatchObject({
      active: true,
    });
  });

  test.each(Object.keys(forgedJwts))("it is not active: %s", async (name) => {
    await expectInactive((await forgedJwts[name]?.(genuine)) ?? "");
  });

  const ownHeaders: Record<string, Forge> = {
    "no kid": (good) => genuinely(good, { header: { kid: undefined } }),
    "the kid of another published key": (good) => genuinely(good, { header: { kid: "published" } }),
    "another published key under the kid of this one": (good) =>
      genuinely({ ...good, privateKey: published.privateKey }),
    "two kids, the last one right": (good) =>
      genuinely(good, { headerText: JSON.stringify(good.header).replace("{", '{"kid":"published",') }),
    "two kids, the first one right": (good) =>
      genuinely(good, { headerText: JSON.stringify(good.header).replace("}", ',"kid":"published"}') }),
    ...Object.fromEntries(
      [
        "unknown",
        "",
        "../../../../etc/passwd",
        "/dev/null",
        "' or '1'='1",
        "a\0b",
        "published\0",
        "__proto__",
        "constructor",
        "*",
        "http://127.0.0.1/jwks",
        1,
        null,
        true,
        ["published"],
        { kid: "published" },
      ].map((kid): [string, Forge] => [
        `kid ${JSON.stringify(kid)}`,
        (good) => genuinely(good, { header: { kid } }),
      ]),
    ),
    "a kid of 10 KB": (good) => genuinely(good, { header: { kid: "k".repeat(10_240) } }),
    "no typ": (good) => genuinely(good, { header: { typ: undefined } }),
    "the typ of any JWT": (good) => genuinely(good, { header: { typ: "JWT" } }),
    "the typ of a logout token": (good) => genuinely(good, { header: { typ: "logout+jwt" } }),
    "a list of typ": (good) => genuinely(good, { header: { typ: ["at+jwt"] } }),
  };
  test.each(Object.keys(ownHeaders))("it is not active: %s", async (name) => {
    await expectInactive((await ownHeaders[name]?.(genuine)) ?? "");
  });

  const ownClaims: Record<string, () => object> = {
    "no sub": () => ({ sub: undefined }),
    "a sub that is a number": () => ({ sub: 1 }),
    "no aud": () => ({ aud: undefined }),
    "an empty aud": () => ({ aud: [] }),
    "the aud of somebody else": () => ({ aud: ["somebody-else"] }),
    "an aud of numbers": () => ({ aud: [1] }),
    "no iat": () => ({ iat: undefined }),
    "an iat with a fraction": () => ({ iat: seconds() - 0.5 }),
    "an exp with a fraction": () => ({ exp: seconds() + 300.5 }),
    "no nbf": () => ({ nbf: undefined }),
    "an nbf with a fraction": () => ({ nbf: seconds() - 0.5 }),
    "no client_id": () => ({ client_id: undefined }),
    "a client_id that is a number": () => ({ client_id: 7 }),
    "a scope that is a list": () => ({ scope: ["profile"] }),
    "the jti of no authorization": () => ({ jti: `${randomUUID()}.${"A".repeat(22)}` }),
    "a jti of another form": () => ({ jti: "{a,b}" }),
    "a jti with more after it": () => ({ jti: `${genuine.claims()["jti"]}\n` }),
    "a jti with a character missing": () => ({ jti: `${genuine.claims()["jti"]}`.slice(0, -1) }),
    "a jti with an id in upper case": () => ({ jti: `${genuine.claims()["jti"]}`.toUpperCase() }),
    "the issuer of somebody else": () => ({ iss: "https://id.example.com/api/auth" }),
  };
  test.each(Object.keys(ownClaims))("it is not active: %s", async (name) => {
    await expectInactive(genuinely(genuine, { claims: ownClaims[name]?.() ?? {} }));
  });

  test("neither an OTP proof nor a refresh token is one", async () => {
    const phone = newPhone();
    const post = async (path: string, body: object): Promise<Record<string, unknown>> => {
      const response = await fetch(`${server.origin}/otp-verifier/v1/${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      return JSON.parse(await response.text());
    };
    await post("verifications", { phone });
    const messages = await fetch(
      `${server.origin}/otp-verifier/v1/messages?phone=${encodeURIComponent(phone)}`,
    );
    const code = /"code":"(\d+)"/.exec(await messages.text())?.[1];
    const { otpVerificationToken } = await post("verifications/confirm", { phone, code });
    expect(otpVerificationToken).toMatch(/^ey/);
    await expectInactive(String(otpVerificationToken));
    await expectInactive(refreshToken);
  });

  test("a long one is not active, and one that is over the limit of any body is refused unread", async () => {
    await expectInactive(`${genuinely(genuine)}${"A".repeat(60_000)}`);
    await expectInactive("a".repeat(60_000));
    await expectInactive(".".repeat(60_000));
    await expectInactive(genuinely(genuine, { claims: { more: "a".repeat(40_000) } }));
    expect((await introspect("a".repeat(1_048_576))).status).toBe(413);
  });

  test("a thousand unknown kids in a row are not active", async () => {
    const tokens = Array.from({ length: 1000 }, (_, n) =>
      compact(
        { ...genuine.header, kid: `unknown-${n}`, jku: listenerUrl },
        genuine.claims(),
        genuine.privateKey,
        "RS256",
      ),
    );
    for (let start = 0; start < tokens.length; start += 50) {
      await Promise.all(tokens.slice(start, start + 50).map(expectInactive));
    }
  });

  test("a hostile one is not revoked either, and revokes nothing", async () => {
    const good = genuinely(genuine);
    const hostile = [respelled(good), `${good}=`, `${good}.`, good.replace(/\.[^.]*$/, ".")];
    for (const token of hostile) {
      const response = await api.call("revokeToken", { as: internal, form: { token } });
      expect(response).toMatchObject({ status: 400, body: { error: "invalid_token" } });
    }
    expect(await api.introspect(good)).toMatchObject({ active: true });
  });
});

/** The same signature in another spelling of base64url. */
function respelled(token: string): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return token.slice(0, -1) + alphabet[alphabet.indexOf(token.slice(-1)) ^ 1];
}

const otpKeys = {
  RS256: rsaPair,
  ES256: () => generateKeyPairSync("ec", { namedCurve: "P-256" }),
  EdDSA: () => generateKeyPairSync("ed25519"),
};

describe.each(Object.entries(otpKeys))("as an OTP proof under a key for %s", (alg, makePair) => {
  const { privateKey, publicKey } = makePair();
  let server: AuthServer;
  let api: AuthApi;
  let genuine: Genuine;
  let phone: string;
  let id: string;
  let garbage: ReturnType<typeof visible>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer("PGlite", { env: { OTP_VERIFICATION_TOKEN_PUBLIC_KEY: pem(publicKey) } });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    ({ id, phone } = await api.newIdentity());
    const claims = () => ({ iss: "otp-verifier", sub: phone, phone_number: phone, jti: randomUUID() });
    genuine = {
      privateKey,
      header: { alg, typ: "JWT" },
      claims: () => ({ ...claims(), iat: seconds(), exp: seconds() + 300 }),
      listener: listenerUrl,
    };
    garbage = visible(await redeem("garbage"));
  });

  const redeem = (otp_verification_token: string) =>
    api.token({ grant_type: "phone_otp_token", phone, otp_verification_token });

  async function expectRefused(token: string): Promise<void> {
    const response = await redeem(token);
    expect(response).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
    expect(visible(response)).toEqual(garbage);
  }

  test("a good one is taken", async () => {
    expect((await redeem(genuinely(genuine))).status).toBe(200);
  });

  // A proof needs neither, as it has an iat and can be told by what was signed.
  const optional = ["no exp", "an exp in a __proto__", "no jti"];
  test.each(Object.keys(forgedJwts).filter((name) => !optional.includes(name)))(
    "it is refused: %s",
    async (name) => {
      await expectRefused((await forgedJwts[name]?.(genuine)) ?? "");
    },
  );

  const ownClaims: Record<string, () => object> = {
    "another phone": () => ({ phone_number: newPhone() }),
    "a subject with another phone": () => ({ phone_number: undefined, sub: newPhone() }),
    "a phone_number that is no text, and the right subject": () => ({ phone_number: [phone] }),
    "neither phone_number nor subject": () => ({ phone_number: undefined, sub: undefined }),
    "an age of more than ten minutes": () => ({ iat: seconds() - 602 }),
    "an age of more than ten minutes, without an exp": () => ({ iat: seconds() - 602, exp: undefined }),
    "a life of more than ten minutes, without an iat": () => ({ iat: undefined, exp: seconds() + 700 }),
    "neither iat nor exp": () => ({ iat: undefined, exp: undefined }),
    "the issuer of the access tokens": () => ({ iss: server.base }),
  };
  test.each(Object.keys(ownClaims))("it is refused: %s", async (name) => {
    await expectRefused(genuinely(genuine, { claims: ownClaims[name]?.() ?? {} }));
  });

  test("neither an access token nor a refresh token is one", async () => {
    const pair = await api.newPair(id);
    await expectRefused(pair.access_token);
    await expectRefused(pair.refresh_token);
    const signing = createPrivateKey(server.settings.signing.privateKey);
    const { keyId: kid } = server.settings.signing;
    await expectRefused(compact({ alg: "RS256", typ: "at+jwt", kid }, genuine.claims(), signing, "RS256"));
  });

  test("one that is too long for any proof is refused", async () => {
    await expectRefused(`${genuinely(genuine)}${"A".repeat(4000)}`);
    const tooLong = await redeem("a".repeat(8193));
    expect(tooLong).toMatchObject({ status: 400, body: { error: "invalid_request" } });
    expect((await redeem("a".repeat(1_048_576))).status).toBe(413);
  });

  if (alg !== "ES256") return;
  test("a signature in DER form is refused", async () => {
    const input = `${base64url(genuine.header)}.${base64url(genuine.claims())}`;
    await expectRefused(`${input}.${base64url(sign("sha256", Buffer.from(input), privateKey))}`);
  });
});

test("no address in a token was ever requested", async () => {
  expect(visits).toEqual([]);
  await fetch(`${listenerUrl}/control`);
  expect(visits).toEqual(["/control"]);
});
