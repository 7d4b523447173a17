/** Access tokens as identity providers write them, and the other tokens that they sign with the same keys. */
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Callers, createCallers } from "../../../src/push/callers/callers.ts";
import { compact } from "../../auth/tokens/forged-jwts.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Issuer, newKey, type SigningKey, startIssuer } from "./issuer.ts";

const audience = "https://push.example.com";

let issuer: Issuer;
let rsa: SigningKey;
let ec: SigningKey;
const cleanup = suiteCleanup();
beforeAll(async () => {
  issuer = await startIssuer();
  cleanup.defer(() => issuer.stop());
  rsa = newKey("rsa");
  ec = newKey("ec", { alg: "ES256" }, generateKeyPairSync("ec", { namedCurve: "P-256" }));
  issuer.keys = [rsa, ec];
});

let clock: MovableClock;
let log: CapturedLog;
const opened: { close(): void }[] = [];
beforeEach(() => {
  clock = movableClock();
  log = captureLog();
});
afterEach(() => {
  for (const one of opened.splice(0)) one.close();
});

function callersFor(required: string | undefined): Callers {
  const callers = createCallers({
    issuer: issuer.issuer,
    audience: required,
    userAppClientIds: ["app"],
    backofficeClientId: "office",
    introspection: undefined,
    clock,
    logger: log.logger,
  });
  opened.push(callers);
  return callers;
}
const ask = (token: string, required: string | undefined = audience) =>
  callersFor(required).user(`Bearer ${token}`);

type Parts = { readonly header: object; readonly claims: Readonly<Record<string, unknown>> };
const seconds = () => Math.floor(clock.now() / 1000);
const sign = ({ header, claims }: Parts, key = rsa, alg = "RS256") =>
  compact({ alg, kid: key.kid, ...header }, { iss: issuer.issuer, ...claims }, key.privateKey, alg);

/** Each provider's access token of a user; its client is "app". */
const accessTokens: Readonly<Record<string, () => Parts>> = {
  Keycloak: () => ({
    header: { typ: "JWT" },
    claims: {
      ...{ exp: seconds() + 300, iat: seconds(), auth_time: seconds() - 5, jti: `onrtac:${randomUUID()}` },
      ...{
        aud: [audience, "account"],
        sub: "7f0d4c1e-6a43-4a52-8c11-0a5f3f2a6b11",
        typ: "Bearer",
        azp: "app",
      },
      ...{ sid: randomUUID(), acr: "1", "allowed-origins": ["https://app.example.com"] },
      ...{ realm_access: { roles: ["default-roles-shop"] }, scope: "openid profile", email_verified: true },
    },
  }),
  "Keycloak before version 24": () => ({
    header: { typ: "JWT" },
    claims: {
      ...{ exp: seconds() + 300, iat: seconds(), jti: randomUUID(), aud: audience, sub: randomUUID() },
      ...{ typ: "Bearer", azp: "app", nonce: randomUUID(), session_state: randomUUID() },
    },
  }),
  "Keycloak with at+jwt": () => ({
    header: { typ: "at+jwt" },
    claims: {
      ...{ exp: seconds() + 300, iat: seconds(), jti: randomUUID(), aud: audience, sub: randomUUID() },
      ...{ typ: "Bearer", azp: "app", client_id: "app" },
    },
  }),
  Zitadel: () => ({
    header: { typ: "JWT" },
    claims: {
      ...{ aud: ["app", "266340014985674754", audience], client_id: "app", exp: seconds() + 43_199 },
      ...{
        iat: seconds(),
        nbf: seconds(),
        jti: "V2_266340014985674754-at_266340014985740290",
        sub: "266339",
      },
    },
  }),
  Auth0: () => ({
    header: { typ: "JWT" },
    claims: {
      ...{ sub: "auth0|6553da60a54af58e29493993", aud: [audience, "https://shop.eu.auth0.com/userinfo"] },
      ...{ iat: seconds(), exp: seconds() + 86_400, azp: "app", scope: "openid profile" },
    },
  }),
  "Auth0 with the profile of RFC 9068": () => ({
    header: { typ: "at+jwt" },
    claims: {
      ...{ sub: "auth0|6553da60a54af58e29493993", aud: [audience, "https://shop.eu.auth0.com/userinfo"] },
      ...{ iat: seconds(), exp: seconds() + 86_400, client_id: "app", jti: "73WakrfVbNJBaAmhQtEeDv" },
    },
  }),
  "Amazon Cognito with a resource": () => ({
    header: {},
    claims: {
      ...{ sub: randomUUID(), client_id: "app", aud: audience, token_use: "access", version: 2 },
      ...{ iat: seconds(), exp: seconds() + 3600, jti: randomUUID(), auth_time: seconds() },
    },
  }),
};

describe("an access token", () => {
  test.each(Object.keys(accessTokens))("of %s speaks for its user", async (name) => {
    const parts = accessTokens[name]?.() ?? { header: {}, claims: {} };
    for (const [key, alg] of [
      [rsa, "RS256"],
      [ec, "ES256"],
    ] as const) {
      const { sub: userId, sid: authorizationId } = parts.claims;
      expect(await ask(sign(parts, key, alg))).toEqual({ userId, clientId: "app", authorizationId });
    }
  });

  test.each(Object.keys(accessTokens))("of %s for another audience is refused", async (name) => {
    const { header, claims } = accessTokens[name]?.() ?? { header: {}, claims: {} };
    for (const aud of ["https://other.example.com", ["app"], [], undefined, `${audience}/`, [[audience]]]) {
      expect(await ask(sign({ header, claims: { ...claims, aud } })), String(aud)).toBeUndefined();
    }
  });

  test("of the back office is that, by azp too", async () => {
    const { header, claims } = accessTokens["Keycloak"]?.() ?? { header: {}, claims: {} };
    const office = sign({ header, claims: { ...claims, azp: "office", client_id: "office" } });
    expect(await callersFor(audience).backoffice(`Bearer ${office}`)).toEqual({ clientId: "office" });
    await expect(ask(office)).rejects.toMatchObject({ kind: { status: 403 } });
  });

  test.each([
    ["at+jwt", true],
    ["AT+JWT", true],
    ["application/at+jwt", true],
    ["Application/At+Jwt", true],
    ["JWT", true],
    ["jwt", true],
    ["application/jwt", true],
    [undefined, true],
    ["logout+jwt", false],
    ["secevent+jwt", false],
    ["dpop+jwt", false],
    ["token-introspection+jwt", false],
    ["id_token+jwt", false],
    ["application/application/jwt", false],
    ["JWS", false],
    ["", false],
    [null, false],
    [["JWT"], false],
  ])("of the type %j is accepted: %s", async (typ, isAccepted) => {
    const { claims } = accessTokens["Zitadel"]?.() ?? { claims: {} };
    expect((await ask(sign({ header: { typ }, claims }))) !== undefined).toBe(isAccepted);
  });

  test.each([
    ["no client", { client_id: undefined, azp: undefined }],
    ["two clients", { client_id: "app", azp: "office" }],
    ["a client that is a list", { client_id: ["app"] }],
    ["an azp that is a number", { client_id: undefined, azp: 7 }],
    ["a subject that cannot be stored", { sub: "u\u0000" }],
    ["a subject of half a character", { sub: "u\ud800" }],
  ])("with %s is refused", async (_, change) => {
    const { header, claims } = accessTokens["Zitadel"]?.() ?? { header: {}, claims: {} };
    expect(await ask(sign({ header, claims: { ...claims, ...change } }))).toBeUndefined();
  });
});

describe("without a required audience", () => {
  test("only the type at+jwt is accepted, and the log says so once", async () => {
    const callers = callersFor(undefined);
    const statuses: boolean[] = [];
    for (const typ of ["at+jwt", "application/AT+JWT", "JWT", undefined, "JWT"]) {
      const { claims } = accessTokens["Zitadel"]?.() ?? { claims: {} };
      statuses.push((await callers.user(`Bearer ${sign({ header: { typ }, claims })}`)) !== undefined);
    }
    expect(statuses).toEqual([true, true, false, false, false]);
    expect(log.lines().map(({ level, msg }) => [level, msg])).toEqual([
      ["warn", "A token was refused whose typ is not at+jwt: without TOKEN_AUDIENCE no other is accepted"],
    ]);
  });
});

/** Tokens that name the audience and the client, and are no access tokens. */
const others: Readonly<Record<string, () => Parts>> = {
  "Keycloak's ID token": () => marked({ typ: "ID", at_hash: "rS0B7aTpJGlVsP1kJTpDtw", nonce: "n" }),
  "Keycloak's ID token without at_hash": () => marked({ typ: "ID" }),
  "Keycloak's refresh token": () => marked({ typ: "Refresh" }),
  "Keycloak's offline token": () => marked({ typ: "Offline" }),
  "Keycloak's logout token": () => marked({ typ: "Logout" }),
  "Keycloak's token that is bound to a DPoP key": () => marked({ typ: "DPoP" }),
  "a token that is bound to a DPoP key": () =>
    marked({ cnf: { jkt: "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I" } }),
  "a token that is bound to a certificate": () =>
    marked({ cnf: { "x5t#S256": "bwcK0esc3ACC3DB2Y5_lESsXE8o9ltc05O89jdN-dg2" } }),
  "a payload's typ that is no text": () => marked({ typ: ["Bearer", "ID"] }),
  "Zitadel's ID token": () => marked({ at_hash: "rS0B7aTpJGlVsP1kJTpDtw", amr: ["pwd"], azp: "app" }),
  "an ID token of the hybrid flow": () => marked({ c_hash: "LDktKdoQak3Pk0cnXxCltA" }),
  "an ID token of the implicit flow": () => marked({ nonce: "n-0S6_WzA2Mj" }),
  "Amazon Cognito's ID token": () => marked({ token_use: "id" }),
  "a logout token without a type": () =>
    marked({ events: { "http://schemas.openid.net/event/backchannel-logout": {} }, sid: randomUUID() }),
  "a logout token": () => ({
    header: { typ: "logout+jwt" },
    claims: { ...marked({}).claims, events: { "http://schemas.openid.net/event/backchannel-logout": {} } },
  }),
};

function marked(claims: object): Parts {
  return {
    header: { typ: "JWT" },
    claims: {
      ...{ aud: ["app", audience], azp: "app", sub: "u-1", exp: seconds() + 300, iat: seconds() },
      ...claims,
    },
  };
}

describe("another token of the same issuer is refused", () => {
  test("and is accepted without what tells that it is another", async () => {
    expect(await ask(sign(marked({})))).toEqual({ userId: "u-1", clientId: "app" });
  });

  test.each(Object.keys(others))("%s", async (name) => {
    const parts = others[name]?.() ?? marked({});
    expect(await ask(sign(parts))).toBeUndefined();
    expect(log.text()).toBe("");
  });

  test("an ID token of Auth0, whose audience is the client", async () => {
    const claims = { aud: "app", sub: "auth0|1", exp: seconds() + 300, iat: seconds(), sid: "s" };
    expect(await ask(sign({ header: { typ: "JWT" }, claims }))).toBeUndefined();
    expect(await ask(sign({ header: { typ: "JWT" }, claims: { ...claims, azp: "app" } }))).toBeUndefined();
  });
});
