/**
 * Push behind an identity provider by somebody else, node-oidc-provider: it issues tokens over HTTP, with its own
 * discovery, key set and development keys, and push registers a device, sends, and shows the history.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import Provider from "oidc-provider";
import { beforeAll, expect, test } from "vitest";
import { type PushServer, startPushServer } from "../../support/push-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const audience = "https://push.example.com";
const redirectUri = "https://app.example.com/callback";
const app = { id: "app", secret: "the-secret-of-the-app" };
const office = { id: "office", secret: "the-secret-of-the-office" };

let issuer: string;
let server: PushServer;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const listener = createServer();
  await once(listener.listen(0, "127.0.0.1"), "listening");
  cleanup.defer(() => {
    listener.closeAllConnections();
    listener.close();
  });
  const address = listener.address();
  issuer = `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
  const provider = new Provider(issuer, {
    clients: [
      { client_id: app.id, client_secret: app.secret, redirect_uris: [redirectUri] },
      {
        ...{ client_id: office.id, client_secret: office.secret, redirect_uris: [], response_types: [] },
        grant_types: ["client_credentials"],
      },
    ],
    pkce: { required: () => false },
    features: {
      clientCredentials: { enabled: true },
      introspection: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => audience,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({ scope: "push", audience, accessTokenFormat: "jwt" }),
      },
    },
  });
  listener.on("request", provider.callback());
  server = await startPushServer("PGlite", {
    env: {
      IDENTITY_PROVIDER_ISSUER_URI: issuer,
      TOKEN_AUDIENCE: audience,
      USER_APP_CLIENT_ID: app.id,
      BACKOFFICE_CLIENT_ID: office.id,
    },
  });
  cleanup.defer(() => server.stop());
});

type Tokens = { readonly access_token: string; readonly id_token: string };

async function token({ id, secret }: typeof app, form: Record<string, string>): Promise<Tokens> {
  const authorization = `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
  const body = new URLSearchParams(form);
  const response = await fetch(`${issuer}/token`, { method: "POST", headers: { authorization }, body });
  const text = await response.text();
  expect(response.status, text).toBe(200);
  return JSON.parse(text);
}

/** Signs in on the provider's own pages for development, as a browser does. */
async function signIn(login: string): Promise<Tokens> {
  const cookies = new Map<string, string>();
  const go = async (url: string, form?: Record<string, string>) => {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
    const sent = form && { method: "POST", body: new URLSearchParams(form) };
    const response = await fetch(new URL(url, issuer), { ...sent, headers: { cookie }, redirect: "manual" });
    for (const line of response.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(line) ?? [];
      cookies.set(name, value);
    }
    await response.text();
    return response.headers.get("location") ?? "";
  };
  const query = new URLSearchParams({ client_id: app.id, response_type: "code", redirect_uri: redirectUri });
  query.set("scope", "openid push");
  let location = await go(`/auth?${query}`);
  for (const form of [{ prompt: "login", login, password: "any" }, { prompt: "consent" }]) {
    if (location.startsWith(redirectUri)) break;
    location = await go(await go(location, form));
  }
  const code = new URL(location).searchParams.get("code") ?? "";
  return token(app, { grant_type: "authorization_code", code, redirect_uri: redirectUri });
}

async function push(method: string, path: string, bearer: string, body?: object) {
  const response = await fetch(`${server.base}/v1/pushprovider/${path}`, {
    method,
    headers: { authorization: `Bearer ${bearer}`, "content-type": "application/json" },
    ...(body && { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  return { status: response.status, body: text === "" ? undefined : JSON.parse(text) };
}

test("a user registers a device, the back office sends, and the user sees it in the history", async () => {
  const user = await signIn("ada");
  const operator = await token(office, { grant_type: "client_credentials", scope: "push" });
  const device = { token: "adas-phone", expiration: "2035-01-01T00:00:00Z" };
  expect(await push("POST", "token", user.access_token, device)).toMatchObject({ status: 204 });
  const notification = { title: "Summer is here", message: "Have a look.", utcOffsets: [0] };
  expect(await push("POST", "push", operator.access_token, notification)).toMatchObject({ status: 204 });
  await expect
    .poll(async () => (await push("GET", "notifications-history", user.access_token)).body?.content, {
      timeout: 20_000,
    })
    .toMatchObject([{ userId: "ada", notification: { title: "Summer is here" } }]);
});

test("a token of the wrong application is 403, and the ID token of the same sign-in is 401", async () => {
  const user = await signIn("grace");
  expect((await push("POST", "push", user.access_token, {})).status).toBe(403);
  expect((await push("GET", "notifications-summary", user.access_token)).status).toBe(200);
  expect((await push("GET", "notifications-summary", user.id_token)).status).toBe(401);
});

test("it does not introspect its JWTs: they are good until they expire", async () => {
  const { access_token } = await signIn("joan");
  const authorization = `Basic ${Buffer.from(`${app.id}:${app.secret}`).toString("base64")}`;
  const body = new URLSearchParams({ token: access_token });
  const response = await fetch(`${issuer}/token/introspection`, {
    method: "POST",
    headers: { authorization },
    body,
  });
  expect([response.status, await response.json()]).toMatchObject([400, { error: "unsupported_token_type" }]);
});
