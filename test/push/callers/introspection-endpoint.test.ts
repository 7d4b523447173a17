/** The identity provider's own introspection endpoint (RFC 7662), and what comes of each of its answers. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import { afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { type Callers, createCallers } from "../../../src/push/callers/callers.ts";
import { createIntrospectionEndpoint } from "../../../src/push/callers/introspection-endpoint.ts";
import { captureLog } from "../../support/captured-log.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Issuer, newKey, type SigningKey, startIssuer } from "./issuer.ts";

let issuer: Issuer;
let key: SigningKey;
const cleanup = suiteCleanup();
beforeAll(async () => {
  issuer = await startIssuer();
  cleanup.defer(() => issuer.stop());
  key = newKey("k-1");
  issuer.keys = [key];
});

let callers: Callers & { close(): void };
beforeEach(() => {
  callers = createCallers({
    issuer: issuer.issuer,
    audience: "app",
    userAppClientIds: ["app"],
    backofficeClientId: "office",
    introspection: { clientId: "push service", clientSecret: "s:3 cret+ä" },
    clock: systemClock,
    logger: captureLog().logger,
  });
});
afterEach(() => callers.close());

/** @returns the origin of the server, which is closed after the tests */
async function listening(server: Server): Promise<string> {
  await once(server.listen(0, "127.0.0.1"), "listening");
  cleanup.defer(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
}

const ask = (token = issuer.token(key, Date.now())) => callers.user(`Bearer ${token}`);
const caller = { userId: "u-1", clientId: "app" };

test("is asked as RFC 7662 and RFC 6749 have it, once for each call and never for what is no token", async () => {
  issuer.introspection = { status: 200, text: '{"active":true}' };
  issuer.asked.length = 0;
  const token = issuer.token(key, Date.now());
  for (let call = 0; call < 2; call += 1) expect(await ask(token)).toEqual(caller);
  expect(await ask("garbage")).toBeUndefined();
  expect(await ask(`${token.slice(0, -4)}AAAA`)).toBeUndefined();
  expect(issuer.asked).toHaveLength(2);
  const { authorization = "", body } = issuer.asked[0] ?? { body: "" };
  expect(Buffer.from(authorization.replace("Basic ", ""), "base64").toString()).toBe(
    "push+service:s%3A3+cret%2B%C3%A4",
  );
  expect(Object.fromEntries(new URLSearchParams(body))).toEqual({ token, token_type_hint: "access_token" });
});

test.each([
  [
    "says that it is active, and whose it is",
    { active: true, sub: "u-1", client_id: "app", username: "ada" },
    true,
  ],
  ["says only that it is active", { active: true }, true],
  ["leaves the client null", { active: true, sub: "u-1", client_id: null }, true],
  ["says that it is not active", { active: false }, false],
  ["says that it is not active, and more", { active: false, sub: "u-1", client_id: "app" }, false],
  ["names another subject", { active: true, sub: "u-2" }, false],
  ["names another client", { active: true, sub: "u-1", client_id: "office" }, false],
])("of a token whose issuer %s", async (_, answer, isAccepted) => {
  issuer.introspection = { status: 200, text: JSON.stringify(answer) };
  expect(await ask()).toEqual(isAccepted ? caller : undefined);
});

test.each([
  ["active as text", 200, '{"active":"true"}'],
  ["active as a number", 200, '{"active":1}'],
  ["nothing about it", 200, "{}"],
  ["a subject that is no text", 200, '{"active":true,"sub":["u-1"]}'],
  ["a list", 200, '[{"active":true}]'],
  ["null", 200, "null"],
  ["no JSON", 200, "<html>"],
  ["status 201", 201, '{"active":true}'],
  ["status 401", 401, '{"active":true}'],
  ["status 500", 500, '{"active":true}'],
])("an answer that decides nothing is 503: %s", async (_, status, text) => {
  issuer.introspection = { status, text };
  const setting = expect.stringMatching(
    /^IDENTITY_PROVIDER_ISSUER_URI is http:\/\/[^ ]+: the request failed$/,
  );
  const expected = { kind: { code: "unavailable", status: 503 }, cause: { message: setting } };
  await expect(ask()).rejects.toMatchObject(expected);
});

test("an endpoint that closes its connections when they have served two requests fails no call", async () => {
  const requests = new WeakMap<object, number>();
  const server = createServer((request, response) => {
    const nth = (requests.get(request.socket) ?? 0) + 1;
    requests.set(request.socket, nth);
    if (nth > 2) request.socket.destroy();
    else response.end(JSON.stringify({ issuer: origin, introspection_endpoint: origin, active: true }));
  });
  const origin = await listening(server);
  const endpoint = createIntrospectionEndpoint(origin, { clientId: "push", clientSecret: "secret" });
  for (let call = 0; call < 5; call += 1) expect(await endpoint.introspect("t")).toBeDefined();
});

test("an endpoint that moves is found again, and one that fails is not looked for at each call", async () => {
  let [path, discoveries] = ["/before", 0];
  const server = createServer((request, response) => {
    const json = (body: object) =>
      response.setHeader("content-type", "application/json").end(JSON.stringify(body));
    if (request.url === path) json({ active: true });
    else if (request.url?.startsWith("/.well-known/")) {
      discoveries += 1;
      json({ issuer: origin, introspection_endpoint: `${origin}${path}` });
    } else response.writeHead(404).end();
  });
  const origin = await listening(server);
  const credentials = { clientId: "push", clientSecret: "secret" };
  const patient = createIntrospectionEndpoint(origin, credentials);
  const keen = createIntrospectionEndpoint(origin, credentials, 0);
  for (const endpoint of [patient, keen]) expect(await endpoint.introspect("t")).toBeDefined();
  path = "/after";
  await expect(keen.introspect("t")).rejects.toThrow();
  expect(await keen.introspect("t")).toBeDefined();
  const found = discoveries;
  for (let call = 0; call < 3; call += 1) await expect(patient.introspect("t")).rejects.toThrow();
  expect(discoveries).toBe(found);
});
