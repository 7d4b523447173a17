/** What is public: the key set, the two discovery documents, and how keys change without an outage. */
import { createPublicKey, generateKeyPairSync } from "node:crypto";
import { decodeProtectedHeader } from "jose";
import * as oauth from "oauth4webapi";
import { beforeAll, describe, expect, test } from "vitest";
import type { components } from "../../../gen/openapi/auth.ts";
import { serverMetadata } from "../../../src/auth/keys/server-metadata.ts";
import { type AuthApi, authApi, basic, type TokenPair } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { type Backend, backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

type KeySet = components["schemas"]["KeySet"];
type Metadata = components["schemas"]["ServerMetadata"];

/** A key as an operator has it. */
function newKey(kid: string) {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const { n = "", e = "" } = publicKey.export({ format: "jwk" });
  return {
    kid,
    jwk: { kty: "RSA", kid, n, e },
    env: {
      RSA_PRIVATE_KEY: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
      RSA_PUBLIC_KEY: publicKey.export({ type: "spki", format: "pem" }).toString(),
      RSA_KEY_ID: kid,
    },
  };
}
type Key = ReturnType<typeof newKey>;
const [first, second, third] = [newKey("2026-01"), newKey("2026-02"), newKey("2026-03")];

/** Signs with one key and publishes others. */
function signingWith(key: Key, ...published: Key[]): Record<string, string> {
  return { ...key.env, RSA_PUBLISHED_KEYS: JSON.stringify({ keys: published.map(({ jwk }) => jwk) }) };
}

const published = { use: "sig", alg: "RS256" };

describe("what is public", () => {
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer("PGlite", { env: signingWith(first, second, third) });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const keySet = async (headers: Record<string, string> = {}) => api.call("getKeySet", { headers });
  const jwksUrl = () => `${server.base}/v1/jwks`;

  describe("the key set", () => {
    test("holds the public half of the signing key and the published keys, and not a member more", async () => {
      const { body, headers } = await keySet();
      expect(body).toEqual({ keys: [first, second, third].map(({ jwk }) => ({ ...jwk, ...published })) });
      expect(headers.get("cache-control")).toBe("public, max-age=300");
      const [signing] = (body as KeySet).keys;
      const { kty = "", n = "", e = "" } = signing ?? {};
      const key = createPublicKey({ key: { kty, n, e }, format: "jwk" });
      expect(key.equals(createPublicKey(first.env.RSA_PRIVATE_KEY))).toBe(true);
    });

    test("is for everybody, whatever credentials they send", async () => {
      expect((await api.call("getKeySet", { as: basic("nobody", "wrong") })).status).toBe(200);
      expect((await api.call("getKeySet", { as: "Bearer x" })).status).toBe(200);
    });

    test.each([
      ["application/jwk-set+json", 200],
      ["application/jwk-set+json, application/json;q=0.5", 200],
      ["text/html, application/*+json;q=0.1", 200],
      ["application/json;q=0, application/jwk-set+json", 200],
      ["application/jwk-set+json;q=0, text/html", 406],
      ["application/jwk+json", 406],
    ])("asked for as %s is answered %i", async (accept, status) => {
      const response = await keySet({ accept });
      expect(response.status).toBe(status);
      if (status === 200) expect(response.headers.get("content-type")).toBe("application/json");
    });

    test("is 304 to who has it, by its tag, by a weak one, in a list or by any", async () => {
      const { headers } = await keySet();
      const etag = headers.get("etag") ?? "";
      expect(etag).toMatch(/^"[\w-]+"$/);
      for (const tags of [etag, `W/${etag}`, `"other", ${etag}`, `"other",W/${etag} `, "*"]) {
        const answer = await keySet({ "if-none-match": tags });
        expect(answer, tags).toMatchObject({ status: 304, text: "" });
        expect(answer.headers.get("etag")).toBe(etag);
      }
      for (const tags of ['"other"', etag.slice(1, -1), `"${etag}"`, ""]) {
        expect((await keySet({ "if-none-match": tags })).status, tags).toBe(200);
      }
    });

    test("has a tag that depends on the keys alone", async () => {
      const tagOf = async (env: Record<string, string>) => {
        const other = await startAuthServer("PGlite", { env });
        const { headers } = await authApi(other.base).call("getKeySet");
        await other.stop();
        return headers.get("etag");
      };
      const etag = (await keySet()).headers.get("etag");
      expect(await tagOf(signingWith(first, second, third))).toBe(etag);
      expect(await tagOf(signingWith(first, second))).not.toBe(etag);
    });
  });

  test.each(["/v1/jwks", "/.well-known/openid-configuration"])(
    "HEAD of %s is GET without its body",
    async (path) => {
      const get = await fetch(`${server.base}${path}`);
      const head = await fetch(`${server.base}${path}`, { method: "HEAD" });
      expect(head.status).toBe(200);
      expect(await head.text()).toBe("");
      for (const name of ["content-type", "cache-control", "etag"]) {
        expect(head.headers.get(name)).toBe(get.headers.get(name));
      }
      expect(head.headers.get("x-request-id")).toMatch(/./);
      await get.text();
    },
  );

  test("HEAD of the key set is 304 to who has it", async () => {
    const etag = (await keySet()).headers.get("etag") ?? "";
    const head = await fetch(jwksUrl(), { method: "HEAD", headers: { "if-none-match": etag } });
    expect(head.status).toBe(304);
  });

  test.each(["/v1/jwks", "/.well-known/openid-configuration"])(
    "OPTIONS of %s says what it has",
    async (path) => {
      const response = await fetch(`${server.base}${path}`, { method: "OPTIONS" });
      expect(response.status).toBe(204);
      expect(response.headers.get("allow")).toBe("GET, HEAD, OPTIONS");
    },
  );

  describe("discovery", () => {
    const documents = ["getOpenIdConfiguration", "getAuthorizationServerMetadata"];
    const read = async (operation: string) => (await api.call(operation)).body as Metadata;

    test("is the same document in both places", async () => {
      const [one, other] = await Promise.all(documents.map(read));
      expect(one).toEqual(other);
      expect(one?.issuer).toBe(server.base);
    });

    const atRoot = "/.well-known/oauth-authorization-server/api/auth";

    test("is at the root of the host as well, where RFC 8414 places it, with all that a path answers", async () => {
      const below = await api.call("getAuthorizationServerMetadata");
      const root = await fetch(server.origin + atRoot);
      expect(await root.text()).toBe(below.text);
      const named = ["content-type", "cache-control"];
      const of = (headers: Headers) => named.map((name) => headers.get(name));
      expect([root.status, ...of(root.headers)]).toEqual([below.status, ...of(below.headers)]);
      const statusOf = async (method: string) => (await fetch(server.origin + atRoot, { method })).status;
      expect(await Promise.all(["HEAD", "OPTIONS", "POST"].map(statusOf))).toEqual([200, 204, 405]);
    });

    test("is found by a standard client, in the way of OpenID Connect and in that of OAuth", async () => {
      const issuer = new URL(server.base);
      for (const algorithm of ["oidc", "oauth2"] as const) {
        const response = await oauth.discoveryRequest(issuer, {
          algorithm,
          [oauth.allowInsecureRequests]: true,
        });
        const found = await oauth.processDiscoveryResponse(issuer, response);
        expect(found.jwks_uri).toBe(jwksUrl());
      }
    });

    test("names endpoints that are there, and lets a standard client get, introspect and revoke a token", async () => {
      const metadata: oauth.AuthorizationServer = await read("getOpenIdConfiguration");
      const insecure = { [oauth.allowInsecureRequests]: true };
      const client: oauth.Client = { client_id: "backend" };
      const secret = oauth.ClientSecretBasic("backend-dev-secret");
      const { id } = await api.newIdentity();
      const granted = await oauth.genericTokenEndpointRequest(
        metadata,
        client,
        secret,
        "auth",
        { auth_id: id },
        insecure,
      );
      const tokens = await oauth.processGenericTokenEndpointResponse(metadata, client, granted);
      const internal = { client_id: "internal" };
      const internalSecret = oauth.ClientSecretBasic("internal-dev-secret");
      const isActive = async () => {
        const response = await oauth.introspectionRequest(
          metadata,
          internal,
          internalSecret,
          tokens.access_token,
          insecure,
        );
        return oauth.processIntrospectionResponse(metadata, internal, response);
      };
      expect(await isActive()).toMatchObject({
        active: true,
        sub: id,
        client_id: "backend",
        iss: metadata.issuer,
      });
      const revoked = await oauth.revocationRequest(
        metadata,
        client,
        secret,
        tokens.refresh_token ?? "",
        insecure,
      );
      await oauth.processRevocationResponse(revoked);
      expect(await isActive()).toEqual({ active: false });
      const { keys }: KeySet = JSON.parse(await (await fetch(metadata.jwks_uri ?? "")).text());
      expect(keys.map(({ kid }) => kid)).toContain(first.kid);
      expect((await fetch(String(metadata["service_documentation"]))).status).toBe(200);
    });

    test("has all that RFC 8414 and OpenID Connect Discovery require, but for an authorization endpoint", async () => {
      const metadata: Record<string, unknown> = { ...(await read("getOpenIdConfiguration")) };
      const required = ["issuer", "token_endpoint", "jwks_uri", "response_types_supported"];
      const ofOpenId = ["subject_types_supported", "id_token_signing_alg_values_supported"];
      for (const member of [...required, ...ofOpenId]) expect(metadata[member], member).toBeDefined();
      expect(metadata).not.toHaveProperty("authorization_endpoint");
    });

    test("has no empty list, also where no client has a scope (RFC 8414 section 3.2)", () => {
      const metadata = serverMetadata("https://id.example.com", []);
      expect(JSON.stringify(metadata)).not.toContain("scopes_supported");
      for (const value of Object.values(metadata)) expect(value).not.toEqual([]);
    });

    test("says which grants, scopes and ways to authenticate there are", async () => {
      expect(await read("getOpenIdConfiguration")).toMatchObject({
        grant_types_supported: [
          ...["password", "refresh_token", "phone_otp", "auth", "phone_otp_token"],
          ...["client_credentials", "authorization_code"],
        ],
        response_types_supported: ["code"],
        subject_types_supported: ["public"],
        id_token_signing_alg_values_supported: ["RS256"],
        token_endpoint_auth_methods_supported: ["client_secret_basic", "none"],
        scopes_supported: ["notifications:send", "orders", "profile", "sessions"],
      });
    });

    test("speaks of the issuer that is set, not of the address that was asked", async () => {
      const issuer = "https://id.example.com/api/auth";
      const other = await startAuthServer("PGlite", { env: { OAUTH_SERVER_ISSUER: issuer } });
      const { body, text } = await authApi(other.base).call("getOpenIdConfiguration", {
        headers: { "x-forwarded-host": "evil.example", forwarded: "host=evil.example" },
      });
      await other.stop();
      expect(body).toMatchObject({ issuer, token_endpoint: `${issuer}/oauth2/v1/tokens` });
      expect(text).not.toMatch(/127\.0\.0\.1|evil/);
    });
  });
});

describe.each(backends)("keys that are changed by configuration, on %s", (backend: Backend) => {
  let store: AuthStore;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
  });

  const start = (env: Record<string, string>) => startAuthServer(backend, { env: { ...store.env, ...env } });
  async function during<T>(env: Record<string, string>, work: (api: AuthApi) => Promise<T>): Promise<T> {
    const server = await start(env);
    return work(authApi(server.base)).finally(() => server.stop());
  }
  const kidOf = (pair: TokenPair) => decodeProtectedHeader(pair.access_token).kid;
  const isActive = async (api: AuthApi, pair: TokenPair) => (await api.introspect(pair.access_token)).active;

  test("the old key's tokens are active as long as it is published, and not a moment longer", async () => {
    const { id, old } = await during(signingWith(first), async (api) => {
      const identity = await api.newIdentity();
      return { ...identity, old: await api.newPair(identity.id) };
    });
    expect(kidOf(old)).toBe(first.kid);

    const next = await during(signingWith(second, first), async (api) => {
      expect(await isActive(api, old)).toBe(true);
      const pair = await api.newPair(id);
      expect(kidOf(pair)).toBe(second.kid);
      expect(await isActive(api, pair)).toBe(true);
      const { keys } = (await api.call("getKeySet")).body as KeySet;
      expect(keys.map(({ kid }) => kid)).toEqual([second.kid, first.kid]);
      return pair;
    });

    await during(signingWith(second), async (api) => {
      expect(await isActive(api, old)).toBe(false);
      expect(await isActive(api, next)).toBe(true);
      // The refresh token is not signed: the user stays logged in.
      const { status, body } = await api.refresh(old.refresh_token);
      expect(status).toBe(200);
      expect(kidOf(body as TokenPair)).toBe(second.kid);
    });
  });

  if (backend === "PGlite") return;
  test("while servers of both configurations run, each knows the tokens of the other", async () => {
    const servers = await Promise.all([start(signingWith(first, second)), start(signingWith(second, first))]);
    const apis = servers.map((server) => authApi(server.base));
    const [api] = apis;
    const id = (await api?.newIdentity())?.id ?? "";
    const pairs = await Promise.all(Array.from({ length: 40 }, (_, n) => apis[n % 2]?.newPair(id)));
    expect(new Set(pairs.map((pair) => pair && kidOf(pair)))).toEqual(new Set([first.kid, second.kid]));
    const answers = await Promise.all(
      pairs.flatMap((pair) => apis.map((one) => pair !== undefined && isActive(one, pair))),
    );
    await Promise.all(servers.map((server) => server.stop()));
    expect(answers).toEqual(answers.map(() => true));
  });
});
