/**
 * The verifier under load, with the real auth as a process of its own behind an address that outlives it: keys that are
 * rotated, ids of keys that nobody has, and revocations. `TEST_REVOCATIONS=10000` plays more of those.
 */
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decodeProtectedHeader, SignJWT } from "jose";
import { beforeAll, expect, test } from "vitest";
import { bearer } from "../../../packages/verifier/src/node-http.ts";
import { createVerifier, type VerifierOptions } from "../../../packages/verifier/src/verifier.ts";
import { keyFiles, makeKey, retireKeys, useNextKey } from "../../../src/auth/keys/key-folder.ts";
import { authApi, basic } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthProcess, spawnAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { type Front, openFront } from "../../support/front.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const audience = "orders-api";
const shop = basic("shop", "shop-dev-secret");
const clients = withClients(
  {
    ...{ clientId: "shop", clientSecret: "shop-dev-secret", grantTypes: ["auth"], scopes: ["orders"] },
    clientSettings: { audiences: [audience] },
  },
  {
    ...{ clientId: audience, clientSecret: "orders-api-dev-secret", grantTypes: ["auth"] },
    clientSettings: { mayIntrospect: true },
  },
);

let front: Front;
let store: AuthStore;
let keys: string;
let issuer: string;
let server: AuthProcess;
const cleanup = suiteCleanup();

/** Ends auth, and starts it with the keys that are in the folder now. */
async function restart(): Promise<void> {
  await server?.stop();
  const files = Object.entries(keyFiles).map(([name, file]) => [name, join(keys, file)]);
  const env = { ...store.env, ...Object.fromEntries(files), ...clients, OAUTH_SERVER_ISSUER: issuer };
  server = await spawnAuthServer("PGlite", { env });
  front.leadTo(Number(new URL(server.origin).port));
}

beforeAll(async () => {
  front = await openFront();
  cleanup.defer(() => front.close());
  issuer = `${front.origin}/api/auth`;
  store = await createAuthStore("PGlite");
  cleanup.defer(() => store.drop());
  keys = join(mkdtempSync(join(tmpdir(), "gatepost-keys-")), "keys");
  cleanup.defer(() => rmSync(join(keys, ".."), { recursive: true, force: true }));
  await makeKey(keys);
  cleanup.defer(() => server.stop());
  await restart();
});

/** Issues tokens of one user. */
async function newUser(): Promise<() => Promise<string>> {
  const api = authApi(server.base);
  const { id } = await api.newIdentity();
  // The server may have been started anew since.
  return async () => (await authApi(server.base).newPair(id, shop)).access_token;
}

/** An API behind a verifier, its clock, and how often auth was asked for its keys. */
async function protect(mode: "keys" | "strict") {
  const world = { skippedMs: 0, fetches: [] as number[] };
  const monotonic = () => performance.now() + world.skippedMs;
  const common = {
    ...{ issuer, audience },
    platform: {
      monotonic,
      fetch: (address: string | URL | Request, init?: RequestInit) => {
        if (String(address).endsWith("/jwks")) world.fetches.push(monotonic());
        return fetch(address, init);
      },
    },
  };
  const introspection = { clientId: audience, clientSecret: "orders-api-dev-secret" };
  const options: VerifierOptions = mode === "keys" ? { ...common, mode } : { ...common, mode, introspection };
  const handle = bearer(createVerifier(options), (_request, response) => response.end(""));
  const api = createServer((request, response) => void handle(request, response)).listen(0, "127.0.0.1");
  cleanup.defer(() => {
    api.close();
    api.closeAllConnections();
  });
  await once(api, "listening");
  const address = api.address();
  const url = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  async function send(token: string): Promise<number> {
    const response = await fetch(url, { headers: { authorization: `Bearer ${token}` } });
    await response.arrayBuffer();
    return response.status;
  }
  return { world, send };
}

test("keys that are rotated under load fail no request; not announced, the new one is 503 for 30 seconds", async () => {
  const { world, send } = await protect("keys");
  const issue = await newUser();
  let tokens = [await issue()];
  const statuses: Record<number, number> = {};
  let isOver = false;
  async function caller(): Promise<void> {
    while (!isOver) {
      for (const token of tokens) {
        const status = await send(token);
        statuses[status] = (statuses[status] ?? 0) + 1;
      }
    }
  }
  expect(await send(tokens[0] ?? "")).toBe(200);
  const callers = Promise.all(Array.from({ length: 16 }, caller));
  const newToken = async () => void tokens.push(await issue());

  await makeKey(keys);
  await restart();
  world.skippedMs += 10 * 60_000;
  await newToken();
  await useNextKey(keys);
  await restart();
  await newToken();
  tokens = tokens.slice(-1);
  await retireKeys(keys);
  await restart();
  await newToken();

  expect(Object.keys(statuses)).toEqual(["200"]);

  // Not announced, and within 30 seconds of the latest fetch: nobody may look for the new key yet.
  const { length: fetches } = world.fetches;
  world.skippedMs += 5 * 60_000;
  await waitFor(() => expect(world.fetches.length).toBeGreaterThan(fetches));
  await makeKey(keys);
  await useNextKey(keys);
  await restart();
  await newToken();
  await waitFor(() => expect(statuses[503]).toBeGreaterThan(0));
  world.skippedMs += 30_000;
  expect(await send(tokens.at(-1) ?? "")).toBe(200);
  const { 503: tooEarly } = statuses;
  await newToken();
  isOver = true;
  await callers;
  const kids = new Set(tokens.map((token) => decodeProtectedHeader(token).kid));
  expect(kids.size).toBe(2);
  process.stdout.write(`Key rotation: ${JSON.stringify(statuses)}, ${world.fetches.length} fetches\n`);
  expect(Object.keys(statuses)).toEqual(["200", "503"]);
  // Of those that were on their way, 16 at most.
  expect((statuses[503] ?? 0) - (tooEarly ?? 0)).toBeLessThanOrEqual(16);
});

test("10,000 ids of keys that nobody has cause one fetch in 30 seconds", async () => {
  const { world, send } = await protect("keys");
  const good = await (await newUser())();
  expect(await send(good)).toBe(200);
  world.skippedMs += 30_000;
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const forge = () =>
    new SignJWT({ iss: issuer, aud: audience, sub: "u", client_id: "shop" })
      .setProtectedHeader({ alg: "RS256", typ: "at+jwt", kid: randomUUID() })
      .setExpirationTime("10m")
      .sign(privateKey);
  const before = performance.now();
  let sent = 0;
  const statuses = new Set<number>();
  async function caller(): Promise<void> {
    while (sent++ < 10_000) statuses.add(await send(await forge()));
  }
  await Promise.all(Array.from({ length: 32 }, caller));
  const seconds = (performance.now() - before) / 1000;
  process.stdout.write(`10,000 unknown kids in ${seconds.toFixed(1)} s: ${world.fetches.length - 1} fetch\n`);
  // Refused where they were looked for.
  expect([...statuses].sort()).toEqual([401, 503]);
  const gaps = world.fetches.slice(1).map((at, index) => at - (world.fetches[index] ?? 0));
  expect(gaps.length).toBeGreaterThan(0);
  for (const gap of gaps) expect(gap).toBeGreaterThanOrEqual(30_000);
  expect(await send(good)).toBe(200);
});

test("of requests that come after the response to a revocation, strict lets none in", async () => {
  const { send } = await protect("strict");
  const count = Number(process.env["TEST_REVOCATIONS"] ?? 1_000);
  /** By status, and by whether the request came after the response to the revocation. */
  const seen: Record<string, number> = {};
  let begun = 0;

  async function revokeOne(issue: () => Promise<string>): Promise<void> {
    const token = await issue();
    const accepted = Promise.withResolvers<void>();
    let isRevoked = false;
    /** Sends until it has sent one after the revocation. */
    async function caller(): Promise<void> {
      for (let isLate = false; !isLate; ) {
        isLate = isRevoked;
        const status = await send(token);
        const kind = `${status} ${isLate ? "after" : "before"}`;
        seen[kind] = (seen[kind] ?? 0) + 1;
        accepted.resolve();
      }
    }
    const callers = [caller(), caller(), caller()];
    // It is revoked while others are on their way.
    await accepted.promise;
    const { status } = await authApi(server.base).call("revokeToken", { as: shop, form: { token } });
    expect(status).toBe(200);
    isRevoked = true;
    await Promise.all(callers);
  }
  async function lane(): Promise<void> {
    const issue = await newUser();
    while (begun++ < count) await revokeOne(issue);
  }
  await Promise.all(Array.from({ length: 8 }, lane));
  process.stdout.write(`${count} revocations: ${JSON.stringify(seen)}\n`);
  expect(Object.keys(seen).sort()).toEqual(["200 before", "401 after", "401 before"]);
  expect(seen["401 after"]).toBe(count * 3);
});
