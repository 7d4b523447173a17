/** The verifier alone, where the table of frameworks cannot look: how often it asks, and what it makes of odd responses. */
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { type JWTPayload, SignJWT } from "jose";
import { describe, expect, test, vi } from "vitest";
import { bearer as connect } from "../../packages/verifier/src/connect.ts";
import { bearer as express } from "../../packages/verifier/src/express.ts";
import { bearer as fastify } from "../../packages/verifier/src/fastify.ts";
import { bearer as grpcJs } from "../../packages/verifier/src/grpc-js.ts";
import { bearer as hono } from "../../packages/verifier/src/hono.ts";
import { bearer as nodeHttp } from "../../packages/verifier/src/node-http.ts";
import { createVerifier, type VerifierOptions } from "../../packages/verifier/src/verifier.ts";

const issuer = "https://id.example.com/api/auth";
const audience = "orders-api";
const introspection = { clientId: "orders-api", clientSecret: "s:e c+r/et" };
const start = Date.parse("2026-01-01T00:00:00Z");

interface Key {
  readonly kid: string;
  readonly privateKey: KeyObject;
  readonly jwk: object;
}

function newKey(kid: string): Key {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { kid, privateKey, jwk: { ...publicKey.export({ format: "jwk" }), kid, use: "sig", alg: "RS256" } };
}
const [first, second] = [newKey("first"), newKey("second")];

function tokenOf(key: Key, changed: JWTPayload = {}, header: object = {}): Promise<string> {
  const seconds = start / 1000;
  const claims = {
    iss: issuer,
    aud: audience,
    sub: "u-1",
    client_id: "shop",
    exp: seconds + 900,
    ...changed,
  };
  const marks = { alg: "RS256", typ: "at+jwt", kid: key.kid, ...header };
  return new SignJWT(claims).setProtectedHeader(marks).sign(key.privateKey);
}

/** Auth as its responses are set, and a clock that only the test moves. */
function createWorld() {
  const world = {
    keys: [first.jwk] as object[],
    away: false,
    introspect: async (_request: RequestInit): Promise<Response> => Response.json({ active: false }),
    keySet: async (): Promise<Response> => Response.json({ keys: world.keys }),
    clock: 0,
    fetches: 0,
    discoveries: 0,
    failures: [] as Error[],
  };
  const fetch = async (url: string | URL | Request, init: RequestInit = {}): Promise<Response> => {
    const path = String(url).slice(issuer.length);
    if (path === "/jwks") world.fetches++;
    if (world.away) throw new TypeError("fetch failed");
    if (path === "/jwks") return world.keySet();
    if (path === "/introspect") return world.introspect(init);
    world.discoveries++;
    const endpoints = { jwks_uri: `${issuer}/jwks`, introspection_endpoint: `${issuer}/introspect` };
    return Response.json({ issuer, ...endpoints });
  };
  const common = {
    issuer,
    audience,
    platform: { fetch, now: () => start + world.clock, monotonic: () => world.clock },
    onUnavailable: (error: Error) => {
      world.failures.push(error);
      throw new Error("the log is full");
    },
  };
  const keys = createVerifier({ ...common, mode: "keys" });
  const strict = createVerifier({ ...common, mode: "strict", introspection });
  return { world, keys, strict };
}

async function statusOf(outcome: ReturnType<ReturnType<typeof createVerifier>["verify"]>): Promise<number> {
  return (await outcome).refusal?.status ?? 200;
}

describe("keys", () => {
  test("fetches once for 10,000 unknown kids, and again 30 seconds later", async () => {
    const { world, keys } = createWorld();
    const unknown = await Promise.all(
      Array.from({ length: 100 }, (_, n) => tokenOf(first, {}, { kid: `unknown-${n}` })),
    );
    const sendAll = () => Promise.all(unknown.map((token) => statusOf(keys.verify(`Bearer ${token}`))));
    for (let round = 0; round < 100; round++) {
      // Known to be of no key where they were looked for; as long as nobody may look, that cannot be said.
      expect(new Set(await sendAll())).toEqual(new Set([round === 0 ? 401 : 503]));
      world.clock += 290;
    }
    expect(world.fetches).toBe(1);
    const { refusal } = await keys.verify(`Bearer ${unknown[0]}`);
    expect(refusal?.headers).toEqual({ "retry-after": "1" });
    world.clock += 1_000;
    expect(new Set(await sendAll())).toEqual(new Set([401]));
    expect(world.fetches).toBe(2);
    expect(world.failures.length).toBeGreaterThan(10);
    expect(world.failures.length).toBeLessThan(30);
  });

  test("no request fails while keys are rotated, nor while a fetch fails", async () => {
    const { world, keys } = createWorld();
    const [old, young] = [await tokenOf(first), await tokenOf(second)];
    const send = (token: string) => statusOf(keys.verify(`Bearer ${token}`));
    expect(await send(old)).toBe(200);
    world.clock += 31_000;
    world.keys = [first.jwk, second.jwk];
    expect(await Promise.all([young, old, young].map(send))).toEqual([200, 200, 200]);
    world.away = true;
    world.clock += 11 * 60_000;
    expect(await Promise.all([young, old].map(send))).toEqual([200, 200]);
    expect(world.failures).not.toEqual([]);
  });

  test("nobody waits for a fetch after one has failed", async () => {
    const { world, keys } = createWorld();
    const token = `Bearer ${await tokenOf(first)}`;
    const send = () => statusOf(keys.verify(token));
    expect(await send()).toBe(200);
    const hanging = Promise.withResolvers<Response>();
    world.keySet = () => hanging.promise;
    world.clock += 11 * 60_000;
    const early = send();
    await vi.waitFor(() => expect(world.fetches).toBe(2));
    hanging.reject(new TypeError("fetch failed"));
    expect(await early).toBe(200);
    world.keySet = () => new Promise(() => undefined);
    world.clock += 31_000;
    expect(await send()).toBe(200);
    expect(world.fetches).toBe(3);
  });

  test.each([
    ["is none", [{ ...first.jwk, n: "?" }]],
    ["is private", [first.privateKey.export({ format: "jwk" })].map((jwk) => ({ ...jwk, kid: "first" }))],
    ["has the id of another", [first.jwk, first.jwk]],
  ])("a key of the issuer that %s is not the token's fault", async (_name, set) => {
    const { world, keys } = createWorld();
    world.keys = set;
    expect(await statusOf(keys.verify(`Bearer ${await tokenOf(first)}`))).toBe(503);
  });

  test("cannot know of an unknown kid while the set cannot be fetched", async () => {
    const { world, keys } = createWorld();
    const send = async (key: Key) => statusOf(keys.verify(`Bearer ${await tokenOf(key)}`));
    world.away = true;
    expect(await send(first)).toBe(503);
    world.away = false;
    world.clock += 1_000;
    expect(await send(first)).toBe(200);
    world.away = true;
    world.clock += 30_000;
    expect(await send(second)).toBe(503);
    expect(await send(first)).toBe(200);
  });

  test.each([
    ["59 seconds after its end", { exp: start / 1000 - 59 }, 200],
    ["60 seconds after its end", { exp: start / 1000 - 60 }, 401],
    ["60 seconds before its begin", { nbf: start / 1000 + 60 }, 200],
    ["61 seconds before its begin", { nbf: start / 1000 + 61 }, 401],
    ["bound to a key", { cnf: { jkt: "x" } }, 401],
    ["without a client", { client_id: undefined }, 401],
    ["of a client", { sub: "shop" }, 401],
  ])("a token %s", async (_name, changed, status) => {
    const { keys } = createWorld();
    expect(await statusOf(keys.verify(`Bearer ${await tokenOf(first, changed)}`))).toBe(status);
  });

  test("a type that is undefined is at+jwt, and not any", async () => {
    const options: object = { type: undefined };
    const { platform } = { platform: { fetch: async () => Response.json({ keys: [first.jwk] }) } };
    const jwksUrl = `${issuer}/jwks`;
    const verifier = createVerifier({ issuer, audience, mode: "keys", jwksUrl, platform, ...options });
    const exp = Date.now() / 1000 + 60;
    const send = async (typ: string) =>
      statusOf(verifier.verify(`Bearer ${await tokenOf(first, { exp }, { typ })}`));
    expect([await send("at+jwt"), await send("JWT")]).toEqual([200, 401]);
  });
});

describe("strict", () => {
  const active = { active: true, sub: "u-1", client_id: "shop", aud: [audience], exp: start / 1000 + 900 };

  test("each request is a call of its own, which no later one joins", async () => {
    const { world, strict } = createWorld();
    const calls: PromiseWithResolvers<Response>[] = [];
    world.introspect = () => {
      const call = Promise.withResolvers<Response>();
      calls.push(call);
      return call.promise;
    };
    const early = statusOf(strict.verify("Bearer token"));
    await vi.waitFor(() => expect(calls).toHaveLength(1));
    const late = statusOf(strict.verify("Bearer token"));
    await vi.waitFor(() => expect(calls).toHaveLength(2));
    calls[0]?.resolve(Response.json(active));
    calls[1]?.resolve(Response.json({ active: false }));
    expect([await early, await late]).toEqual([200, 401]);
  });

  test.each([
    ["as expected", active, 200],
    ["of another audience", { ...active, aud: ["shop"] }, 401],
    ["of a part of the audience", { ...active, aud: "orders-api-2" }, 401],
    ["of another issuer", { ...active, iss: "https://id.example.com" }, 401],
    ["active by auth's clock alone", { ...active, exp: start / 1000 - 90, nbf: start / 1000 + 90 }, 200],
    ["of a client", { ...active, sub: "shop" }, 401],
    ["bound to a key", { ...active, cnf: { jkt: "x" } }, 401],
    ["unclear", { ...active, active: "true" }, 503],
    ["empty", {}, 503],
  ])("an introspection that is %s", async (_name, body, status) => {
    const { world, strict } = createWorld();
    world.introspect = async () => Response.json(body);
    expect(await statusOf(strict.verify("Bearer token"))).toBe(status);
  });

  test("sends its credentials, and tells the log where they are refused", async () => {
    const { world, strict } = createWorld();
    let sent: string | null = null;
    world.introspect = async ({ headers }) => {
      sent = new Headers(headers).get("authorization");
      return new Response("", { status: 401 });
    };
    expect(await statusOf(strict.verify("Bearer token"))).toBe(503);
    expect(sent).toBe(`Basic ${btoa("orders-api:s%3Ae+c%2Br%2Fet")}`);
    expect(world.failures.map(({ message }) => message).join()).toMatch(
      /refuses the credentials.*mayIntrospect/,
    );
    expect(JSON.stringify(world.failures)).not.toContain("Bearer");
  });

  test("a connection that was closed while idle is tried once more; Retry-After is passed on", async () => {
    const { world, strict } = createWorld();
    const failed = (code: string) =>
      new TypeError("fetch failed", { cause: Object.assign(new Error(), { code }) });
    const responses = [
      () => Promise.reject(failed("UND_ERR_SOCKET")),
      async () => Response.json(active),
      () => Promise.reject(failed("ECONNREFUSED")),
      async () => new Response("", { status: 503, headers: { "retry-after": "7" } }),
    ];
    world.introspect = async () => (await responses.shift()?.()) ?? Response.json({ active: false });
    expect(await statusOf(strict.verify("bearer token"))).toBe(200);
    expect(await statusOf(strict.verify("bearer token"))).toBe(503);
    const { refusal } = await strict.verify("Bearer token");
    expect(refusal).toMatchObject({ status: 503, grpcCode: 14, headers: { "retry-after": "7" } });
  });

  test("looks for the endpoint once, and again only where it was not found", async () => {
    const { world, strict } = createWorld();
    const send = () => statusOf(strict.verify("Bearer token"));
    world.away = true;
    expect(await send()).toBe(503);
    world.away = false;
    expect(new Set(await Promise.all(Array.from({ length: 100 }, send)))).toEqual(new Set([401]));
    world.introspect = async () => new Response("", { status: 429 });
    expect(await send()).toBe(503);
    expect(await send()).toBe(503);
    expect(world.discoveries).toBe(1);
    world.introspect = async () => new Response("", { status: 404 });
    expect(await send()).toBe(503);
    world.introspect = async () => Response.json(active);
    expect(await send()).toBe(200);
    expect(world.discoveries).toBe(2);
  });
});

test("a client is let in where that is asked for, and its scopes count", async () => {
  const { keys } = createWorld();
  const token = `Bearer ${await tokenOf(first, { sub: "shop", scope: "orders" })}`;
  const send = (scope: string) => statusOf(keys.verify(token, { clients: true, scopes: [scope] }));
  expect([await send("orders"), await send("profile")]).toEqual([200, 403]);
});

test.each([
  [{ mode: "cached" }, /mode/],
  [{ audience: "" }, /audience/],
  [{ issuer: "id" }, /issuer/],
  [{ issuer: "ftp://id.example.com" }, /issuer/],
  [{ mode: "strict", introspection: undefined }, /introspection/],
  [{ mode: "strict", introspection: { clientId: "orders-api", clientSecret: "" } }, /clientSecret/],
])("options that cannot work are refused: %j", (changed, message) => {
  const options: VerifierOptions = { issuer, audience, mode: "keys" };
  expect(() => createVerifier(Object.assign({}, options, changed))).toThrow(message);
});

describe.each([
  ["express", (wrong: object) => express(createWorld().keys, wrong)],
  ["fastify", (wrong: object) => fastify(createWorld().keys, wrong)],
  ["hono", (wrong: object) => hono(createWorld().keys, wrong)],
  ["node-http", (wrong: object) => nodeHttp(createWorld().keys, () => undefined, wrong)],
  ["connect", (wrong: object) => connect(createWorld().keys, wrong)],
  ["grpc-js", (wrong: object) => grpcJs(createWorld().keys, wrong)],
  ["verify", (wrong: object) => createWorld().keys.verify(undefined, wrong)],
])("%s", (_name, make) => {
  test.each([[["orders"]], [{ scope: [] }], [{ scopes: "orders" }], [{ scopes: ["orders read"] }]])(
    "refuses the requirements %j at once",
    (wrong) => {
      expect(() => make(wrong)).toThrow(TypeError);
    },
  );
});
