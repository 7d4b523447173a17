/** `fetch` with an access token: where it is sent, and which requests are repeated with another one. */
import { createServer } from "node:http";
import { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { beforeAll, beforeEach, expect, test } from "vitest";
import { authorizedFetch, type TokenSource } from "../../../packages/client/src/authorized-fetch.ts";
import { listening } from "../../../src/platform/http/server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

type Body = NonNullable<RequestInit["body"]> | null;

const session: TokenSource = { accessToken: async (refused) => (refused === undefined ? "old" : "new") };

/** Tokens with the bodies that the API has got. */
const seen: string[] = [];
let challenge: string | undefined;
let origin: string;
let call: typeof fetch;
const cleanup = suiteCleanup();

beforeAll(async () => {
  const server = createServer(async (request, response) => {
    if (request.url === "/moved") return void response.writeHead(307, { location: "/" }).end();
    const { authorization = "" } = request.headers;
    seen.push(`${authorization.slice("Bearer ".length)} ${await text(request)}`);
    if (challenge !== undefined) response.setHeader("www-authenticate", challenge);
    response.writeHead(authorization === "Bearer new" ? 200 : 401).end();
  });
  const port = await listening(server, "127.0.0.1", 0);
  cleanup.defer(() => {
    server.close();
    server.closeAllConnections();
  });
  origin = `http://127.0.0.1:${port}`;
  call = authorizedFetch({ session, origins: [origin] });
});
beforeEach(() => {
  seen.length = 0;
  challenge = 'Bearer realm="api", error="invalid_token"';
});

test("the token is sent to no other origin", async () => {
  const call = authorizedFetch({ session, origins: ["https://api.example.com"] });
  for (const url of ["https://example.com", "http://api.example.com", "https://api.example.com:444"])
    await expect(call(url)).rejects.toThrow("none of the origins");
  expect(() => authorizedFetch({ session, origins: ["http://api"] })).toThrow(TypeError);
});

test("no redirect is followed with it", async () => {
  await expect(call(`${origin}/moved`, { redirect: "follow" })).rejects.toThrow();
  expect((await call(`${origin}/moved`, { redirect: "manual" })).status).toBe(307);
  expect(seen).toEqual([]);
});

test.each([
  ['Bearer error="invalid_token"', 2],
  ["Bearer error=invalid_token, realm=api", 2],
  // As a browser hides it.
  [undefined, 2],
  ["Bearer", 1],
  ['DPoP error="use_dpop_nonce"', 1],
])("a 401 with the challenge %s: %i requests", async (header, requests) => {
  challenge = header;
  await call(origin);
  expect(seen).toHaveLength(requests);
});

const form = new FormData();
form.append("a", "b");
const bytes = new TextEncoder().encode("text");

test.each<[string, Body]>([
  ["nothing", null],
  ["a string", "text"],
  ["parameters", new URLSearchParams({ a: "b" })],
  ["a form", form],
  ["a blob", new Blob(["text"])],
  ["bytes", bytes],
  ["a buffer", bytes.buffer],
])("%s is sent again", async (_, body) => {
  const method = "POST";
  expect((await call(origin, { method, body })).status).toBe(200);
  expect((await call(new Request(origin, { method, body }))).status).toBe(200);
  expect(seen.map((one) => one.slice(0, 4))).toEqual(["old ", "new ", "old ", "new "]);
  if (body !== form) expect(new Set(seen.map((one) => one.slice(4))).size).toBe(1);
  else expect(seen[3]).toContain('name="a"');
});

test("a stream is sent once, but for that of a Request", async () => {
  async function* iterable() {
    yield bytes;
  }
  const stream = () => new Blob([bytes]).stream();
  const init = (body: Body) => ({ method: "POST", body, duplex: "half" }) as const;
  for (const body of [stream(), iterable(), Readable.from([bytes])])
    expect((await call(origin, init(body))).status).toBe(401);
  expect(seen).toEqual(["old text", "old text", "old text"]);
  expect((await call(new Request(origin, init(stream())))).status).toBe(200);
  expect(seen.at(-1)).toBe("new text");
});

test("a signal is heard while a token is waited for", async () => {
  const { promise, resolve } = Promise.withResolvers<string>();
  const call = authorizedFetch({ session: { accessToken: () => promise }, origins: [origin] });
  const controller = new AbortController();
  const called = [
    call(origin, { signal: controller.signal }),
    call(new Request(origin, { signal: controller.signal })),
  ];
  controller.abort(new Error("no longer wanted"));
  for (const one of called) await expect(one).rejects.toThrow("no longer wanted");
  resolve("new");
  expect((await call(origin)).status).toBe(200);
  expect(seen).toHaveLength(1);
});
