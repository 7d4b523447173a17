/** An app without a secret signs its user in: by oauth4webapi and fetch, and what is refused on the way. */
import { createSecretKey, generateKeyPair as generateKeys, type KeyObject } from "node:crypto";
import { promisify } from "node:util";
import { exportJWK, SignJWT } from "jose";
import {
  type AuthorizationServer,
  allowInsecureRequests,
  authorizationCodeGrantRequest,
  type Client,
  calculatePKCECodeChallenge,
  DPoP,
  discoveryRequest,
  generateRandomCodeVerifier,
  None,
  processAuthorizationCodeResponse,
  processDiscoveryResponse,
  processRefreshTokenResponse,
  processRevocationResponse,
  refreshTokenGrantRequest,
  revocationRequest,
  validateAuthResponse,
} from "oauth4webapi";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, mobileApp } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { appClient, newKeyPair, type PublicApp, proofOf, publicApp } from "../../support/public-app.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const insecure = { [allowInsecureRequests]: true } as const;
const attested = await promisify(generateKeys)("ec", { namedCurve: "P-256" });
const attestedByRsa = await promisify(generateKeys)("rsa", { modulusLength: 2048 });
const attestedByEd25519 = await promisify(generateKeys)("ed25519", {});
const [attestedPem = "", ...attestedPems] = [attested, attestedByRsa, attestedByEd25519].map(
  ({ publicKey }) => publicKey.export({ type: "spki", format: "pem" }),
);

let server: AuthServer;
let api: AuthApi;
let app: PublicApp;
let attestedApp: PublicApp;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const clients = withClients(
    appClient("app"),
    appClient("joining", { clientSettings: { signUp: true } }),
    appClient("attested", { clientSettings: { attestationKeys: [attestedPem, attestedPems.join("")] } }),
  );
  server = await startAuthServer("PGlite", { env: { ...clients, ...generousLimits } });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
  app = await newApp("app");
  attestedApp = await newApp("attested");
});

const newApp = async (clientId: string) =>
  publicApp({
    ...{ clientId, issuer: server.settings.issuer, keys: await newKeyPair() },
    next: () => api,
    otp: (phone) => sentCode([server], phone),
  });
const errorOf = ({ status, body }: { status: number; body: unknown }) => ({ status, ...Object(body) });
const targetOf = (path: string) => `${server.settings.issuer}/oauth2/v1/${path}`;

test("a standard client and fetch walk from the phone to the revoked pair, with no secret", async () => {
  const { id, phone } = await api.newIdentity({ phone: newMobilePhone() });
  const issuer = new URL(server.settings.issuer);
  const as: AuthorizationServer = await processDiscoveryResponse(
    issuer,
    await discoveryRequest(issuer, { algorithm: "oauth2", ...insecure }),
  );
  const client: Client = { client_id: "app" };
  const keys = await newKeyPair();
  const dpop = DPoP(client, keys);
  const code_verifier = generateRandomCodeVerifier();
  const endpoint = String(as["authorization_challenge_endpoint"]);
  const challenge = async (form: Record<string, string>) => {
    const response = await fetch(endpoint, {
      method: "POST",
      headers: { DPoP: await proofOf(keys, endpoint) },
      body: new URLSearchParams({ client_id: "app", ...form }),
    });
    return Object(await response.json());
  };
  const { auth_session, otp_required } = await challenge({
    response_type: "code",
    login_hint: phone,
    code_challenge: await calculatePKCECodeChallenge(code_verifier),
    code_challenge_method: "S256",
  });
  expect(otp_required).toBe(true);
  const { authorization_code } = await challenge({ auth_session, otp: await sentCode([server], phone) });
  const callback = validateAuthResponse(as, client, new URLSearchParams({ code: authorization_code }));
  const exchange = await authorizationCodeGrantRequest(
    ...([as, client, None(), callback, "https://app.example.com/", code_verifier] as const),
    { DPoP: dpop, ...insecure },
  );
  const tokens = await processAuthorizationCodeResponse(as, client, exchange);
  expect(tokens).toMatchObject({ token_type: "bearer", expires_in: 900, scope: "profile orders" });
  expect(await api.introspect(tokens.access_token)).toMatchObject({ active: true, sub: id, clientId: "app" });
  const refresh = await refreshTokenGrantRequest(as, client, None(), tokens.refresh_token ?? "", {
    DPoP: dpop,
    ...insecure,
  });
  const refreshed = await processRefreshTokenResponse(as, client, refresh);
  expect(refreshed.refresh_token).not.toBe(tokens.refresh_token);
  const token = refreshed.refresh_token ?? "";
  await processRevocationResponse(await revocationRequest(as, client, None(), token, insecure));
  expect(await api.introspect(refreshed.access_token)).toEqual({ active: false });
});

test("the metadata name the endpoint, the method for each operation, and the algorithms", async () => {
  const { body } = await api.call("getAuthorizationServerMetadata");
  const withSecret = ["client_secret_basic"];
  expect(body).toMatchObject({
    authorization_challenge_endpoint: targetOf("authorize-challenge"),
    response_types_supported: ["code"],
    code_challenge_methods_supported: ["S256"],
    dpop_signing_alg_values_supported: ["ES256"],
    grant_types_supported: expect.arrayContaining(["authorization_code"]),
    token_endpoint_auth_methods_supported: [...withSecret, "none"],
    revocation_endpoint_auth_methods_supported: [...withSecret, "none"],
    introspection_endpoint_auth_methods_supported: withSecret,
  });
});

test("a proof is nothing to a client with a secret, not even a bad one", async () => {
  const { id } = await api.newIdentity();
  const form = { grant_type: "auth", auth_id: id };
  const granted = await api.call("generateTokens", { as: mobileApp, form, headers: { DPoP: "x" } });
  expect(granted.status, granted.text).toBe(200);
});

test("a client without a secret is nobody at introspection, and may use its grants only", async () => {
  const introspection = await api.call("introspectToken", { form: { client_id: "app", token: "x" } });
  expect(errorOf(introspection)).toMatchObject({ status: 401, error: "invalid_client" });
  const other = await app.token({ grant_type: "auth", auth_id: "x" });
  expect(errorOf(other)).toMatchObject({ status: 400, error: "unauthorized_client" });
  const asAnother = await app.token({
    client_id: "backend",
    grant_type: "refresh_token",
    refresh_token: "x",
  });
  expect(errorOf(asAnother)).toMatchObject({ status: 400, error: "invalid_client" });
  const withBasic = await api.token({ grant_type: "refresh_token", refresh_token: "x" }, "Basic YXBwOg==");
  expect(errorOf(withBasic)).toMatchObject({ status: 400, error: "invalid_client" });
});

describe("a challenge does not begin", () => {
  test.each([
    ["without PKCE", { code_challenge: "" }, "invalid_request"],
    ["by a plain verifier", { code_challenge_method: "plain" }, "invalid_request"],
    ["for a token", { response_type: "token" }, "invalid_request"],
    ["with text that is no phone number", { login_hint: "ada" }, "invalid_request"],
    ["with a code beside the phone", { otp: "123456" }, "invalid_request"],
    ["for more than the client's scopes", { scope: "everything" }, "invalid_scope"],
    ["for an unknown client", { client_id: "nobody" }, "invalid_client"],
    ["for a client with a secret", { client_id: "backend" }, "invalid_client"],
  ])("%s", async (_what, form, error) => {
    expect(errorOf(await app.begin(newMobilePhone(), form))).toMatchObject({ status: 400, error });
  });

  test("without a proof", async () => {
    const form = { client_id: "app", grant_type: "refresh_token", refresh_token: "x" };
    expect(errorOf(await api.call("generateTokens", { form }))).toMatchObject({
      ...{ status: 400, error: "invalid_request" },
      error_description: expect.stringContaining("/header/DPoP is missing"),
    });
    const begun = await api.call("challengeAuthorization", {
      form: {
        ...{ client_id: "app", response_type: "code", login_hint: newMobilePhone() },
        ...{ code_challenge: "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM", code_challenge_method: "S256" },
      },
    });
    expect(errorOf(begun)).toMatchObject({ status: 400, error: "invalid_request" });
  });
});

describe("a proof is refused", () => {
  const other = "https://id.example.com/api/auth/oauth2/v1/tokens";
  test.each<[string, Parameters<typeof proofOf>[2]]>([
    ["of another type", { header: { typ: "JWT" } }],
    ["for another method", { claims: { htm: "GET" } }],
    ["for another endpoint", { claims: { htu: other } }],
    ["without a jti", { claims: { jti: undefined } }],
    ["without a key", { header: { jwk: undefined } }],
    [
      "with a key of another curve",
      { header: { jwk: { kty: "EC", crv: "P-384", x: "A".repeat(64), y: "A".repeat(64) } } },
    ],
    [
      "with no point of the curve",
      { header: { jwk: { kty: "EC", crv: "P-256", x: "A".repeat(43), y: "A".repeat(43) } } },
    ],
    ["with a symmetric key", { header: { jwk: { kty: "oct", k: "A".repeat(43) } } }],
  ])("%s", async (_what, parts) => {
    const proof = await proofOf(app.keys, targetOf("tokens"), parts);
    const form = { grant_type: "refresh_token", refresh_token: "x" };
    expect(errorOf(await app.token(form, { DPoP: proof }))).toMatchObject({
      ...{ status: 400, error: "invalid_dpop_proof" },
    });
  });

  test("that shows its private key, is signed by another, or comes twice", async () => {
    const target = targetOf("tokens");
    const privateJwk = await exportJWK(app.keys.privateKey);
    const good = await proofOf(app.keys, target);
    const proofs = [
      await proofOf(app.keys, target, { header: { jwk: privateJwk } }),
      await proofOf({ ...app.keys, privateKey: (await newKeyPair()).privateKey }, target),
      `${good}, ${good}`,
    ];
    for (const DPoP of proofs) {
      const refused = await app.token({ grant_type: "refresh_token", refresh_token: "x" }, { DPoP });
      expect(errorOf(refused)).toMatchObject({ status: 400, error: "invalid_dpop_proof" });
    }
  });

  test("by a clock that is off, until it names the nonce of the response", async () => {
    const pair = await app.signIn((await api.newIdentity({ phone: newMobilePhone() })).phone);
    const form = { grant_type: "refresh_token", refresh_token: pair.refresh_token };
    const iat = Math.floor(Date.now() / 1000) - 3600;
    const late = await app.token(form, {
      DPoP: await proofOf(app.keys, targetOf("tokens"), { claims: { iat } }),
    });
    expect(errorOf(late)).toMatchObject({ status: 400, error: "use_dpop_nonce" });
    const nonce = late.headers.get("dpop-nonce");
    const withNonce = { claims: { iat, nonce } };
    const DPoP = await proofOf(app.keys, targetOf("tokens"), withNonce);
    expect((await app.token(form, { DPoP })).status).toBe(200);
  });

  test("but for localhost it is good in development", async () => {
    const local = targetOf("tokens").replace("127.0.0.1", "localhost");
    const pair = await app.signIn((await api.newIdentity({ phone: newMobilePhone() })).phone);
    const DPoP = await proofOf(app.keys, local);
    const form = { grant_type: "refresh_token", refresh_token: pair.refresh_token };
    expect((await app.token(form, { DPoP })).status).toBe(200);
  });
});

describe("a client with attestation keys", () => {
  async function attestation(
    claims: object = {},
    by: KeyObject = attested.privateKey,
    alg = "ES256",
  ): Promise<string> {
    const jwk = await exportJWK(attestedApp.keys.publicKey);
    const exp = Math.floor(Date.now() / 1000) + 60;
    return new SignJWT({ sub: "attested", exp, cnf: { jwk }, ...claims })
      .setProtectedHeader({ alg, typ: "oauth-client-attestation+jwt" })
      .sign(by);
  }
  const begin = (header?: string) =>
    attestedApp.begin(
      newMobilePhone(),
      {},
      header === undefined ? {} : { "OAuth-Client-Attestation": header },
    );

  test.each([
    ["ES256", attested],
    ["RS256", attestedByRsa],
    ["EdDSA", attestedByEd25519],
  ] as const)(
    "begins with an attestation of its back end for its key, by %s",
    async (alg, { privateKey }) => {
      const header = await attestation({}, privateKey, alg);
      expect(errorOf(await begin(header))).toMatchObject({ error: "insufficient_authorization" });
    },
  );

  test("begins with one of a back end whose clock is ahead by half a minute, and not by more than one", async () => {
    const fromNow = async (seconds: number) =>
      errorOf(await begin(await attestation({ nbf: Math.floor(Date.now() / 1000) + seconds })));
    expect(await fromNow(30)).toMatchObject({ error: "insufficient_authorization" });
    expect(await fromNow(90)).toMatchObject({ error: "invalid_client_attestation" });
  });

  test("does not begin with none, another's, one for another key or client, or one that has expired", async () => {
    const other = await promisify(generateKeys)("ec", { namedCurve: "P-256" });
    const { publicKey } = await newKeyPair();
    const refused = [
      undefined,
      "garbled",
      await attestation({}, other.privateKey),
      await attestation({}, createSecretKey(Buffer.from(attestedPem)), "HS256"),
      `${(await attestation()).split(".", 2).join(".")}.AA`,
      await attestation({ sub: "app" }),
      await attestation({ cnf: { jwk: await exportJWK(publicKey) } }),
      await attestation({ exp: undefined }),
    ];
    for (const header of refused) {
      expect(errorOf(await begin(header))).toMatchObject({
        status: 403,
        error: "invalid_client_attestation",
      });
    }
    const expired = await attestation({ exp: Math.floor(Date.now() / 1000) - 1 });
    expect(errorOf(await begin(expired))).toMatchObject({ status: 403, error: "use_fresh_attestation" });
  });
});

describe("an unknown phone", () => {
  test("gets the bodies of a known one: at the beginning, for a wrong code, and at the end", async () => {
    const walk = async (phone: string) => {
      const fixed = (answer: { status: number; body: unknown }) => {
        const { auth_session, ...rest } = Object(answer.body);
        return { status: answer.status, ...rest, length: String(auth_session).length };
      };
      const begun = await app.begin(phone);
      const { auth_session } = Object(begun.body);
      const answers = [fixed(begun)];
      for (let tries = 0; tries < 6; tries += 1) {
        answers.push(fixed(await app.challenge({ auth_session, otp: "000000x" })));
      }
      return answers;
    };
    const unknown = await walk(newMobilePhone());
    expect(unknown).toEqual(await walk((await api.newIdentity({ phone: newMobilePhone() })).phone));
    expect(unknown.at(-1)).toMatchObject({ status: 400, error: "invalid_session" });
  });

  test("signs up where the client may: one identity, however many exchange at once", async () => {
    const phone = newMobilePhone();
    const apps = await Promise.all([1, 2, 3].map(() => newApp("joining")));
    const codes: string[] = [];
    for (const one of apps) codes.push(await one.code(phone));
    const pairs = await Promise.all(apps.map((one, index) => one.exchange(codes[index] ?? "")));
    const subjects = new Set<unknown>();
    for (const { status, text, body } of pairs) {
      expect(status, text).toBe(200);
      subjects.add((await api.introspect(Object(body).access_token)).sub);
    }
    expect(subjects.size).toBe(1);
    const found = await api.call("findIdentityByPhone", {
      as: `Basic ${Buffer.from("internal:internal-dev-secret").toString("base64")}`,
      query: `?phone=${encodeURIComponent(phone)}`,
    });
    expect(subjects).toEqual(new Set([Object(found.body).id]));
  });
});
