/**
 * Third-party clients in their usual use: oauth4webapi, which checks an authorization server against the RFCs, and
 * openapi-fetch with the types that are generated from the document.
 */
import { randomUUID } from "node:crypto";
import {
  type AuthorizationServer,
  allowInsecureRequests,
  ClientSecretBasic,
  discoveryRequest,
  genericTokenEndpointRequest,
  introspectionRequest,
  processDiscoveryResponse,
  processGenericTokenEndpointResponse,
  processIntrospectionResponse,
  processRefreshTokenResponse,
  processRevocationResponse,
  ResponseBodyError,
  refreshTokenGrantRequest,
  revocationRequest,
  validateJwtAccessToken,
  WWWAuthenticateChallengeError,
} from "oauth4webapi";
import createClient from "openapi-fetch";
import { beforeAll, describe, expect, test } from "vitest";
import type { paths } from "../../gen/openapi/auth.ts";
import { type AuthApi, authApi, internal, mobileApp, newPhone } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

/** An id and a secret that form-encoding changes. */
const odd = { clientId: "odd:id/+%41", clientSecret: "s:e+c r%20e&t=/%%" };
const insecure = { [allowInsecureRequests]: true } as const;

let server: AuthServer;
let api: AuthApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const env = withClients({
    ...odd,
    grantTypes: ["auth", "refresh_token"],
    scopes: ["read", "write"],
    clientSettings: { mayIntrospect: true, audiences: ["orders-api"] },
  });
  server = await startAuthServer("PGlite", { env });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
});

describe.each(["oidc", "oauth2"] as const)("oauth4webapi, discovering by %s", (algorithm) => {
  const client = { client_id: odd.clientId };
  const authentication = ClientSecretBasic(odd.clientSecret);
  let as: AuthorizationServer;
  beforeAll(async () => {
    const issuer = new URL(server.settings.issuer);
    const response = await discoveryRequest(issuer, { algorithm, ...insecure });
    as = await processDiscoveryResponse(issuer, response);
  });

  async function newTokens(parameters: Record<string, string> = {}) {
    const { id } = await api.newIdentity();
    const request = { auth_id: id, ...parameters };
    const response = await genericTokenEndpointRequest(as, client, authentication, "auth", request, insecure);
    const tokens = await processGenericTokenEndpointResponse(as, client, response);
    return { id, tokens, refreshToken: tokens.refresh_token ?? expect.fail("no refresh token") };
  }
  async function introspect(token: string) {
    const response = await introspectionRequest(as, client, authentication, token, insecure);
    return processIntrospectionResponse(as, client, response);
  }
  function bearer(token: string): Request {
    return new Request("https://orders.example.com/", { headers: { authorization: `Bearer ${token}` } });
  }

  test("finds an issuer and every endpoint below it", () => {
    const { issuer } = server.settings;
    expect(as).toMatchObject({
      issuer,
      token_endpoint: `${issuer}/oauth2/v1/tokens`,
      introspection_endpoint: `${issuer}/oauth2/v1/introspect`,
      revocation_endpoint: `${issuer}/oauth2/v1/revoke`,
      jwks_uri: `${issuer}/v1/jwks`,
    });
  });

  test("gets tokens, and refreshes them", async () => {
    const { tokens, refreshToken } = await newTokens({ scope: "read" });
    expect(tokens).toMatchObject({ token_type: "bearer", expires_in: 900 });
    const response = await refreshTokenGrantRequest(as, client, authentication, refreshToken, insecure);
    const refreshed = await processRefreshTokenResponse(as, client, response);
    expect(refreshed.refresh_token).not.toBe(refreshToken);
    expect(await introspect(refreshed.access_token)).toMatchObject({ active: true, scope: "read" });
  });

  test("introspects, revokes, and introspects again", async () => {
    const { id, tokens, refreshToken } = await newTokens();
    const active = {
      active: true,
      sub: id,
      client_id: odd.clientId,
      token_type: "Bearer",
      scope: "read write",
    };
    expect(await introspect(tokens.access_token)).toMatchObject(active);
    for (const token of [tokens.access_token, refreshToken]) {
      const response = await revocationRequest(as, client, authentication, token, insecure);
      await processRevocationResponse(response);
      expect(await introspect(tokens.access_token)).toEqual({ active: false });
    }
    const refresh = await refreshTokenGrantRequest(as, client, authentication, refreshToken, insecure);
    const failed = await processRefreshTokenResponse(as, client, refresh).catch((error: unknown) => error);
    expect(failed).toBeInstanceOf(ResponseBodyError);
    expect(failed).toMatchObject({ error: "invalid_grant", status: 400 });
  });

  test("validates an access token by itself (RFC 9068), for each of its audiences and no other", async () => {
    const { id, tokens } = await newTokens();
    for (const audience of [odd.clientId, "orders-api"]) {
      const claims = await validateJwtAccessToken(as, bearer(tokens.access_token), audience, insecure);
      expect(claims).toMatchObject({
        iss: as.issuer,
        sub: id,
        aud: [odd.clientId, "orders-api"],
        client_id: odd.clientId,
        scope: "read write",
      });
    }
    await expect(
      validateJwtAccessToken(as, bearer(tokens.access_token), "another-api", insecure),
    ).rejects.toThrow();
    const forged = `${tokens.access_token.slice(0, -4)}AAAA`;
    await expect(validateJwtAccessToken(as, bearer(forged), "orders-api", insecure)).rejects.toThrow();
  });

  test("gets the error codes of RFC 6749", async () => {
    const request = async (secret: string, grant: string, parameters: Record<string, string>) => {
      const response = await genericTokenEndpointRequest(
        as,
        client,
        ClientSecretBasic(secret),
        grant,
        parameters,
        insecure,
      );
      return processGenericTokenEndpointResponse(as, client, response).catch((error: unknown) => error);
    };
    const { clientSecret } = odd;
    // The challenge comes before the body for this client, whatever the status.
    const challenged = await request("wrong", "auth", { auth_id: "x" });
    expect(challenged).toBeInstanceOf(WWWAuthenticateChallengeError);
    expect(challenged).toMatchObject({ status: 400, cause: [{ scheme: "basic" }] });
    expect(await request(clientSecret, "auth", { auth_id: "nobody" })).toMatchObject({
      error: "invalid_grant",
    });
    expect(await request(clientSecret, "auth", {})).toMatchObject({ error: "invalid_request" });
    expect(await request(clientSecret, "password", {})).toMatchObject({ error: "unauthorized_client" });
    expect(await request(clientSecret, "implicit", {})).toMatchObject({ error: "unsupported_grant_type" });
    const { id } = await api.newIdentity();
    const wide = { auth_id: id, scope: "read admin" };
    expect(await request(clientSecret, "auth", wide)).toMatchObject({ error: "invalid_scope" });
  });
});

describe("openapi-fetch", () => {
  const form = { "content-type": "application/x-www-form-urlencoded" };

  test("walks every operation of the document, with the generated types and nothing else", async () => {
    const client = createClient<paths>({ baseUrl: server.base, headers: { authorization: internal } });
    const [id, phone, email] = [randomUUID(), newPhone(), `${randomUUID()}@example.com`];
    const statuses: number[] = [];
    const note = <T extends { response: Response }>(result: T): T => {
      statuses.push(result.response.status);
      return result;
    };
    const path = { path: { id } };

    const created = note(
      await client.POST("/v1/identities", { body: { id, phone, email, metadata: { a: [1] } } }),
    );
    expect(created.data).toEqual({
      id,
      phone,
      email,
      metadata: { a: [1] },
      authenticationTypes: ["PHONE_OTP"],
    });
    const query = { query: { phone } };
    const found = note(await client.GET("/v1/identities/find-by-phone", { params: query }));
    expect(found.data).toEqual({ id, phone, email });
    const got = note(await client.GET("/v1/identities/{id}", { params: path }));
    expect(got.data).toEqual(created.data);
    note(await client.PUT("/v1/identities/{id}", { params: path, body: { metadata: null } }));
    const body = { password: "correct horse battery staple" };
    note(await client.PUT("/v1/identities/{id}/password", { params: path, body }));

    const asApp = { authorization: mobileApp };
    const tokens = note(
      await client.POST("/oauth2/v1/tokens", {
        headers: { ...asApp, ...form },
        body: { grant_type: "password", username: email, ...body },
      }),
    );
    const { access_token, refresh_token } = tokens.data ?? expect.fail("no tokens");
    const refreshed = note(
      await client.POST("/oauth2/v1/tokens", {
        headers: asApp,
        body: { grant_type: "refresh_token", refresh_token },
      }),
    );
    expect(refreshed.data?.access_token).not.toBe(access_token);
    const ask = () => client.POST("/oauth2/v1/introspect", { headers: form, body: { token: access_token } });
    expect(note(await ask()).data).toMatchObject({ active: true, userInfo: { userId: id } });
    const revoked = note(
      await client.POST("/oauth2/v1/revoke", {
        headers: { ...asApp, ...form },
        body: { token: access_token },
      }),
    );
    expect(revoked.data?.message).toEqual(expect.any(String));
    expect(note(await ask()).data).toEqual({ active: false });
    const keys = note(await client.GET("/v1/jwks"));
    expect(keys.data?.keys).toMatchObject([{ kty: "RSA", n: expect.any(String), e: "AQAD" }]);

    note(await client.DELETE("/v1/identities/{id}/password", { params: path }));
    note(await client.DELETE("/v1/identities/{id}", { params: path }));
    const gone = note(await client.GET("/v1/identities/{id}", { params: path }));
    expect(gone.error?.code).toBe("identity_not_found");
    expect(statuses).toEqual([200, 200, 200, 204, 204, 200, 200, 200, 200, 200, 200, 204, 204, 404]);
  });

  test("reads both discovery documents, which are the same", async () => {
    const client = createClient<paths>({ baseUrl: server.base });
    const { data } = await client.GET("/.well-known/openid-configuration");
    expect(data?.issuer).toBe(server.settings.issuer);
    const other = await client.GET("/.well-known/oauth-authorization-server");
    expect(other.data).toEqual(data);
  });

  test("narrows a problem by its code", async () => {
    const client = createClient<paths>({ baseUrl: server.base, headers: { authorization: internal } });
    const { phone } = await api.newIdentity();
    const { error, response } = await client.POST("/v1/identities", { body: { id: randomUUID(), phone } });
    expect({ status: response.status, code: error?.code }).toEqual({
      status: 409,
      code: "identity_phone_taken",
    });
  });
});
