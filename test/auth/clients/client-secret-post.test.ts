/** Clients that send their secret in the body (RFC 6749 section 2.3.1), where they are registered for it. */
import {
  allowInsecureRequests,
  ClientSecretPost,
  discoveryRequest,
  genericTokenEndpointRequest,
  introspectionRequest,
  processDiscoveryResponse,
  processGenericTokenEndpointResponse,
  processIntrospectionResponse,
  processRevocationResponse,
  revocationRequest,
} from "oauth4webapi";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const clientSecret = "a+secret & more%20";
const registration = { clientSecret, grantTypes: ["auth"], clientSettings: { mayIntrospect: true } };
const inBody = (client_id: string, client_secret = clientSecret) => ({ client_id, client_secret });

let server: AuthServer;
let api: AuthApi;
let authId: string;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const env = withClients(
    {
      ...registration,
      clientId: "either",
      clientAuthenticationMethods: ["client_secret_basic", "client_secret_post"],
    },
    { ...registration, clientId: "post", clientAuthenticationMethods: ["client_secret_post"] },
    { ...registration, clientId: "basic" },
  );
  server = await startAuthServer("PGlite", { env });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
  authId = (await api.newIdentity()).id;
});

const operations = ["generateTokens", "introspectToken", "revokeToken"] as const;

/** A form with which nothing is wrong. */
async function formFor(operation: (typeof operations)[number]): Promise<Record<string, string>> {
  const tokenRequest = { grant_type: "auth", auth_id: authId };
  if (operation === "generateTokens") return tokenRequest;
  const form = { ...tokenRequest, ...inBody("post") };
  const { body } = await api.call("generateTokens", { form });
  return { token: (body as { access_token: string }).access_token };
}

describe.each(operations)("%s", (operation) => {
  const refusedStatus = operation === "generateTokens" ? 400 : 401;
  const challenge = 'Basic realm="gatepost", charset="UTF-8"';

  test("takes the secret in the body of a client that is registered for it", async () => {
    const form = { ...(await formFor(operation)), ...inBody("post") };
    expect((await api.call(operation, { form })).status).toBe(200);
  });

  test("takes either way from a client that is registered for both, and refuses both at once", async () => {
    const own = operation === "revokeToken" ? "post" : "either";
    const form = await formFor(operation);
    expect((await api.call(operation, { form: { ...form, ...inBody(own) } })).status).toBe(200);
    const as = basic("either", clientSecret);
    const twice = await api.call(operation, { as, form: { ...form, ...inBody("either") } });
    expect(twice).toMatchObject({ status: 400, body: { error: "invalid_request" } });
    expect(twice.text).toContain("second time");
    const alone = await api.call(operation, { as, form });
    expect(alone.status, alone.text).toBe(operation === "revokeToken" ? 400 : 200);
  });

  test.each([
    ["a wrong secret", inBody("post", "wrong")],
    ["an unknown client", inBody("nobody")],
    ["a client that is registered for Basic alone", inBody("basic")],
    ["the internal client", inBody("internal", "internal-dev-secret")],
    ["a secret without an id", { client_secret: clientSecret }],
    ["an id without a secret", { client_id: "post" }],
    ["an assertion", { client_id: "post", client_assertion: "x" }],
  ])("refuses %s", async (_what, credentials) => {
    const form = { ...(await formFor(operation)), ...credentials };
    const { status, body, headers } = await api.call(operation, { form });
    expect({ status, body }).toMatchObject({ status: refusedStatus, body: { error: "invalid_client" } });
    expect(headers.get("www-authenticate")).toBe(challenge);
  });

  test("refuses Basic from a client that is registered for the body alone", async () => {
    const { status } = await api.call(operation, {
      as: basic("post", clientSecret),
      form: await formFor(operation),
    });
    expect(status).toBe(refusedStatus);
  });
});

test("a JSON token request carries them too", async () => {
  const json = { grant_type: "auth", auth_id: authId, ...inBody("post") };
  expect((await api.call("generateTokens", { json })).status).toBe(200);
});

test("wrong secrets in the body shut nobody out: the right one still works", async () => {
  const form = { grant_type: "auth", auth_id: authId };
  const wrong = () => api.call("generateTokens", { form: { ...form, ...inBody("either", "wrong") } });
  for (let attempt = 0; attempt < 25; attempt += 1) expect((await wrong()).status).toBe(400);
  const right = await api.call("generateTokens", { form: { ...form, ...inBody("either") } });
  expect(right.status).toBe(200);
});

test("discovery names the method, and oauth4webapi uses it throughout", async () => {
  const insecure = { [allowInsecureRequests]: true } as const;
  const issuer = new URL(server.settings.issuer);
  const as = await processDiscoveryResponse(
    issuer,
    await discoveryRequest(issuer, { algorithm: "oauth2", ...insecure }),
  );
  for (const endpoint of ["token", "introspection", "revocation"]) {
    const methods = as[`${endpoint}_endpoint_auth_methods_supported`];
    const ofApps = endpoint === "introspection" ? [] : ["none"];
    expect(methods).toEqual(["client_secret_basic", "client_secret_post", ...ofApps]);
  }
  const client = { client_id: "post" };
  const authentication = ClientSecretPost(clientSecret);
  const request = await genericTokenEndpointRequest(
    as,
    client,
    authentication,
    "auth",
    { auth_id: authId },
    insecure,
  );
  const { access_token } = await processGenericTokenEndpointResponse(as, client, request);
  const introspect = async () =>
    processIntrospectionResponse(
      as,
      client,
      await introspectionRequest(as, client, authentication, access_token, insecure),
    );
  expect(await introspect()).toMatchObject({ active: true, sub: authId });
  await processRevocationResponse(
    await revocationRequest(as, client, authentication, access_token, insecure),
  );
  expect(await introspect()).toEqual({ active: false });
});
