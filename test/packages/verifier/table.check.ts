/** Good tokens and all kinds of others, at an API in each framework, by both modes, with the real auth. */
import { createHmac, generateKeyPairSync, randomUUID } from "node:crypto";
import { type JWTPayload, SignJWT } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { frameworks, installApis, unresolvable } from "./installed-apis.ts";
import { type Addresses, call, callGrpc, startApis } from "./protected-apis.ts";

const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const publicPem = publicKey.export({ type: "spki", format: "pem" }).toString();
const kid = "table";
const shop = { clientId: "shop", clientSecret: "shop-dev-secret" };
const other = { clientId: "other", clientSecret: "other-dev-secret" };
const ordersApi = { clientId: "orders-api", clientSecret: "orders-api-dev-secret" };

let server: AuthServer;
let api: AuthApi;
let folder: string;
let addresses: Addresses;
let user: string;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startAuthServer("PGlite", {
    env: {
      RSA_PRIVATE_KEY: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
      RSA_PUBLIC_KEY: publicPem,
      RSA_KEY_ID: kid,
      ...withClients(
        {
          ...shop,
          grantTypes: ["auth", "client_credentials"],
          scopes: ["orders", "profile"],
          clientSettings: { audiences: ["orders-api"], organizations: ["42"] },
        },
        { ...other, grantTypes: ["auth"], scopes: ["orders"] },
        { ...ordersApi, grantTypes: ["auth"], clientSettings: { mayIntrospect: true } },
      ),
    },
  });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
  ({ id: user } = await api.newIdentity());
  folder = await installApis(cleanup);
  addresses = await startApis(folder, server.settings.issuer, cleanup);
});

function issued(client = shop, scope = "orders"): Promise<string> {
  return granted({ grant_type: "auth", auth_id: user, scope }, client);
}

async function granted(form: Record<string, string>, client = shop): Promise<string> {
  const as = basic(client.clientId, client.clientSecret);
  const { status, text, body } = await api.token(form, as);
  expect(status, text).toBe(200);
  return (body as { access_token: string }).access_token;
}

async function revoked(): Promise<string> {
  const token = await issued();
  const as = basic(shop.clientId, shop.clientSecret);
  expect((await api.call("revokeToken", { as, form: { token } })).status).toBe(200);
  return token;
}

const seconds = () => Math.floor(Date.now() / 1000);

/** Claims like those of auth's own tokens. */
function claims(changed: JWTPayload = {}): JWTPayload {
  const [iat, exp] = [seconds(), seconds() + 600];
  const own = { sub: user, client_id: "shop", scope: "orders", jti: randomUUID() };
  return { iss: server.settings.issuer, aud: ["shop", "orders-api"], ...own, iat, nbf: iat, exp, ...changed };
}

function signed(changed: JWTPayload, { key = privateKey, typ = "at+jwt" } = {}): Promise<string> {
  return new SignJWT(claims(changed)).setProtectedHeader({ alg: "RS256", typ, kid }).sign(key);
}

function encoded(alg: string): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  return `${part({ alg, typ: "at+jwt", kid })}.${part(claims())}`;
}

function withPublicKeyAsSecret(): string {
  const input = encoded("HS256");
  return `${input}.${createHmac("sha256", publicPem).update(input).digest("base64url")}`;
}

const bad: Readonly<Record<string, () => string | Promise<string>>> = {
  expired: () => signed({ iat: seconds() - 900, nbf: seconds() - 900, exp: seconds() - 90 }),
  "not yet valid": () => signed({ nbf: seconds() + 90 }),
  forged: () => signed({}, { key: generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey }),
  "alg none": () => `${encoded("none")}.`,
  "HS256 with the public key": withPublicKeyAsSecret,
  "of another audience": () => issued(other),
  "of a client": () => granted({ grant_type: "client_credentials" }),
  "of an organization": () => granted({ grant_type: "client_credentials", organization: "42" }),
  "of another issuer": () => signed({ iss: "https://id.example.com" }),
  "of another type": () => signed({}, { typ: "JWT" }),
  "no JWT": () => "abc",
  malformed: () => "a b",
};

describe.each(frameworks)("%s", (framework) => {
  describe.each(["strict", "keys"] as const)("%s", (mode) => {
    const send = (token?: string) =>
      call(framework, addresses[mode][framework], token === undefined ? undefined : `Bearer ${token}`);

    test("lets a good token in", async () => {
      expect(await send(await issued())).toMatchObject({ status: 200, user });
    });

    test("asks for a token, without detail", async () => {
      const challenge = 'Bearer realm="orders-api"';
      expect(await send()).toMatchObject({ status: 401, user: undefined, challenge });
    });

    test.each(Object.entries(bad))("refuses one that is %s", async (_name, make) => {
      const challenge = expect.stringContaining('error="invalid_token"');
      expect(await send(await make())).toMatchObject({ status: 401, user: undefined, challenge });
    });

    test("refuses one without the scope, and names it", async () => {
      const result = await send(await issued(shop, "profile"));
      const challenge = expect.stringMatching(/error="insufficient_scope".*scope="orders"/);
      expect(result).toMatchObject({ status: 403, user: undefined, challenge });
    });

    test("sees a revocation if it is strict", async () => {
      const { status } = await send(await revoked());
      expect(status).toBe(mode === "strict" ? 401 : 200);
    });
  });
});

test("the declarations name no source file", () => {
  expect(unresolvable(folder)).toEqual([]);
});

test.each(["strict", "keys"] as const)(
  "%s: routes need scopes of their own, and may let clients in",
  async (mode) => {
    const tokens = {
      orders: await issued(),
      profile: await issued(shop, "profile"),
      client: await granted({ grant_type: "client_credentials", organization: "42" }),
    };
    const statuses = async (route: string) => {
      const send = (token: string) => call("express", `${addresses[mode].routes}${route}`, `Bearer ${token}`);
      return (await Promise.all(Object.values(tokens).map(send))).map(({ status }) => status);
    };
    expect(await statuses("/orders")).toEqual([200, 403, 401]);
    expect(await statuses("/profile")).toEqual([403, 200, 401]);
    expect(await statuses("/reports")).toEqual([200, 403, 200]);
  },
);

test("a page of another origin can see why it was refused", async () => {
  const headers = { origin: "https://shop.example.com" };
  const url = `${addresses.strict.routes}/orders`;
  const refusal = await fetch(url, { headers });
  expect(refusal.status).toBe(401);
  expect(refusal.headers.get("access-control-expose-headers")).toBe("WWW-Authenticate,Retry-After");
  const asked = { "access-control-request-method": "GET", "access-control-request-headers": "authorization" };
  const preflight = await fetch(url, { method: "OPTIONS", headers: { ...headers, ...asked } });
  expect(preflight.status).toBe(204);
  expect(preflight.headers.get("access-control-allow-headers")).toBe("authorization");
});

test("a service of gRPC may be open", async () => {
  const { status, user: pong } = await callGrpc(addresses.strict["grpc-js"], "/open.v1.Open/Ping");
  expect([status, pong]).toEqual([200, "pong"]);
});

test("of requests that come after a revocation, none is let in, whatever is in flight", async () => {
  const as = basic(shop.clientId, shop.clientSecret);
  const send = (token: string) => call("express", addresses.strict.express, `Bearer ${token}`);
  for (let round = 0; round < 50; round++) {
    const token = await issued();
    const early = Array.from({ length: 5 }, () => send(token));
    await api.call("revokeToken", { as, form: { token } });
    const late = await Promise.all(Array.from({ length: 5 }, () => send(token)));
    expect(late.map(({ status }) => status)).toEqual(Array(5).fill(401));
    await Promise.all(early);
  }
});

test("without auth: strict lets nobody in, known keys serve on, and without keys nobody is let in", async () => {
  const token = await issued();
  await server.stop();
  for (const framework of frameworks) {
    const send = (mode: keyof Addresses) => call(framework, addresses[mode][framework], `Bearer ${token}`);
    const unavailable = { status: 503, user: undefined, retryAfter: expect.stringMatching(/^[1-9]\d*$/) };
    expect(await send("strict"), framework).toMatchObject(unavailable);
    expect(await send("cold"), framework).toMatchObject(unavailable);
    expect(await send("keys"), framework).toMatchObject({ status: 200, user });
  }
});
