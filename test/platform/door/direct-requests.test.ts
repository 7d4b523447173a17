/** Requests that do not pass Hono get the responses that they would get from it, and only the plainest do not. */

import { once } from "node:events";
import { connect } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { connect as connectTls } from "node:tls";
import { Hono } from "hono";
import { beforeAll, describe, expect, it } from "vitest";
import { corsPolicy } from "../../../src/platform/door/cors-policy.ts";
import type { Route } from "../../../src/platform/door/door.ts";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { bindContract, notFound } from "../../../src/platform/openapi/bind.ts";
import { loadContract } from "../../../src/platform/openapi/document.ts";
import { captureLog } from "../../support/captured-log.ts";
import { exchange } from "../../support/http-app.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { type SampleOperations, sampleBinding, sampleTexts } from "../../support/sample-api.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const { logger } = captureLog();
/** The paths of the requests that a route has handled without Hono, in order. */
const handled: string[] = [];
const ports = { direct: 0, hono: 0 };
let routes: readonly Route[] = [];
const cleanup = suiteCleanup();

function counted({ direct, ...route }: Route): Route {
  if (!direct) return route;
  return {
    ...route,
    direct(request, response) {
      handled.push(route.path);
      return direct(request, response);
    },
  };
}

beforeAll(async () => {
  const bound = bindContract<SampleOperations, string>(sampleBinding(await loadContract(sampleTexts)));
  routes = bound.routes;
  const app = new Hono();
  const cors = corsPolicy(["https://app.example"], []);
  app.route("/", bound.app);
  app.notFound(notFound(logger));
  for (const [name, served] of [
    ["direct", { routes: routes.map(counted), cors }],
    ["hono", { cors }],
  ] as const) {
    const server = createHttpServer({ logger });
    server.serve({ fetch: app.fetch, ...served });
    ports[name] = await server.listen("127.0.0.1", 0);
    cleanup.defer(() => server.close(100));
  }
});

/** A request as it is sent, with the host, a request id and the end of the connection. */
function request(start: string, fields: Readonly<Record<string, string | undefined>>, body = ""): string {
  const all = {
    Host: "127.0.0.1:8080",
    "X-Request-Id": "request-1",
    Connection: "close",
    "Content-Length": String(Buffer.byteLength(body)),
    ...fields,
  };
  const lines = Object.entries(all).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}: ${value}`],
  );
  return `${start} HTTP/1.1\r\n${lines.join("\r\n")}\r\n\r\n${body}`;
}

/** The bytes of a request in Latin-1, whose body has this many. */
function latin1(text: string, length: number): Uint8Array {
  return Buffer.from(text.replace(/Content-Length: \d+/, `Content-Length: ${length}`), "latin1");
}

/**
 * A response with its header fields in alphabetical order, without what differs each time: the date, and ids that the
 * server makes.
 */
function comparable(response: string) {
  const final = response.replace("HTTP/1.1 100 Continue\r\n\r\n", "");
  const [head = "", ...rest] = final
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "<id>")
    .split("\r\n\r\n");
  const [status, ...fields] = head.split("\r\n").map((field) => field.toLowerCase());
  const comparable = fields.filter((field) => !field.startsWith("date:")).sort();
  return { status, fields: comparable, body: rest.join("\r\n\r\n") };
}

/** Sends the same to both servers. @returns the response of both, and whether the first one passed Hono */
async function compare(sent: string | Uint8Array) {
  handled.length = 0;
  const response = comparable(await exchange(ports.direct, sent));
  const isDirect = handled.length > 0;
  expect(response).toEqual(comparable(await exchange(ports.hono, sent)));
  return { ...response, isDirect };
}

const form = { "Content-Type": "application/x-www-form-urlencoded" };
const json = { "Content-Type": "application/json" };
const tokens = "POST /api/sample/v1/tokens";
const items = "POST /api/sample/v1/items";

describe("a request that does not pass Hono", () => {
  it.each([
    ["a form", request(tokens, form, "grant=a&scope=b%20c"), 200],
    ["an invalid form", request(tokens, form, "scope=a"), 400],
    ["a repeated field", request(tokens, form, "grant=a&grant=b"), 400],
    ["JSON in the place of a form", request(tokens, json, '{"grant":"a"}'), 200],
    ["no media type", request(tokens, {}, "grant=a"), 415],
    ["no body", request(tokens, form), 400],
    [
      "a body that is left unread",
      request(tokens, { "Content-Type": "text/plain" }, "x".repeat(60_000)),
      415,
    ],
    [
      "a body as long as may be left unread",
      request(tokens, { "Content-Type": "text/plain" }, "x".repeat(65_536)),
      415,
    ],
    ["JSON", request(items, json, '{"name":"a","data":{"ü":[1,null]}}'), 201],
    ["invalid JSON", request(items, json, '{"name":'), 400],
    ["half of a surrogate pair", request(items, json, '{"name":"\\ud800"}'), 400],
    ["a body that is not UTF-8", latin1(request(items, json, '{"name":"\u00ff"}'), 12), 400],
    ["an encoding", request(items, { ...json, "Content-Encoding": "gzip" }, '{"name":"a"}'), 415],
    ["an Expect that is met", request(items, { ...json, Expect: "100-continue" }, '{"name":"a"}'), 201],
    ["a page", request(tokens, { ...form, Origin: "https://app.example" }, "grant=a"), 200],
    ["a page that may not", request(tokens, { ...form, Origin: "https://other.example" }, "grant=a"), 200],
    ["an encoded path", request("POST /api/sample/v1/%74okens", form, "grant=a"), 200],
    ["a whole URL", request("POST http://127.0.0.1:8080/api/sample/v1/tokens", form, "grant=a"), 200],
    ["a host without a port", request(items, { ...json, Host: "auth.example" }, '{"name":"a"}'), 201],
  ])("gets the response that Hono would give: %s", async (_name, sent, status) => {
    const compared = await compare(sent);
    expect(compared.isDirect).toBe(true);
    expect(compared.status).toContain(`http/1.1 ${status} `);
  });

  it("leaves the connection to the next one, also if its body was not read", async () => {
    const kept = { Connection: undefined };
    const refused = request(tokens, { ...kept, "Content-Type": "text/plain" }, "x".repeat(30_000));
    const response = await exchange(ports.direct, refused + request(tokens, form, "grant=a"));
    expect(response.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 415", "HTTP/1.1 200"]);
  });

  it("is responded to in the order of arrival", async () => {
    const kept = { ...form, Connection: undefined };
    const three = ["1", "2"].map((grant) => request(tokens, kept, `grant=${grant}`)).join("");
    const response = await exchange(ports.direct, three + request(tokens, form, "grant=3"));
    expect(response.match(/"grant":"\d"/g)).toEqual(['"grant":"1"', '"grant":"2"', '"grant":"3"']);
  });
});

describe("the rest of a request that has its response", () => {
  /** Refused by its media type, with a body of which only a part is sent at first. */
  const refused = request(
    tokens,
    { "Content-Type": "text/plain", Connection: undefined, "Content-Length": "20" },
    "x",
  );

  it.each(["direct", "hono"] as const)("is awaited for half a second: %s", async (name) => {
    const elapsedMs = stopwatch();
    const response = await exchange(ports[name], refused);
    expect(elapsedMs()).toBeGreaterThan(400);
    expect(response.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 415"]);
  });

  it("leaves the connection open if it arrives", async () => {
    const socket = connect({ port: ports.direct, host: "127.0.0.1" });
    let received = "";
    socket.setEncoding("utf8").on("data", (text: string) => {
      received += text;
    });
    socket.write(refused);
    await once(socket, "data");
    socket.write(`${"x".repeat(19)}${request(tokens, { ...form, Connection: undefined }, "grant=a")}`);
    await once(socket, "data");
    await setTimeout(700);
    socket.end(request(tokens, form, "grant=b"));
    await once(socket, "close");
    expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 415", "HTTP/1.1 200", "HTTP/1.1 200"]);
  });

  it("does not hold up a shutdown", async () => {
    const server = createHttpServer({ logger });
    server.serve({ fetch: () => new Response(), routes });
    const port = await server.listen("127.0.0.1", 0);
    const socket = connect({ port, host: "127.0.0.1" });
    socket.write(refused);
    await once(socket, "data");
    const elapsedMs = stopwatch();
    await server.close(10_000);
    expect(elapsedMs()).toBeLessThan(5_000);
  });
});

describe("a direct route", () => {
  const route = (direct: NonNullable<Route["direct"]>) => ({ method: "POST", path: "/a", direct });

  async function respondBy(direct: NonNullable<Route["direct"]>, origins: readonly string[] = []) {
    const server = createHttpServer({ logger });
    server.serve({ fetch: () => new Response(), routes: [route(direct)], cors: corsPolicy(origins, []) });
    const port = await server.listen("127.0.0.1", 0);
    try {
      return await exchange(port, request("POST /a", { Origin: "https://app.example" }, "a"));
    } finally {
      await server.close(100);
    }
  }

  it("whose response cannot be written gets an error in its place, with nothing of the response", async () => {
    const response = await respondBy(
      async (_request, response) =>
        void response.writeHead(201, { "X-Some": "b", Location: "/1\r\nX-More: a" }),
      ["https://app.example"],
    );
    expect(response).toMatch(/^HTTP\/1\.1 500 Internal Server Error\r\n/);
    expect(response).toContain("application/problem+json");
    expect(response).toContain("access-control-allow-origin: https://app.example");
    expect(response).not.toMatch(/X-Some|Location|X-More/i);
  });

  it("is found over TLS, where a client speaks HTTP/1", async () => {
    const server = createHttpServer({ logger, tls: localhostCertificate });
    const echo = route(async ({ method }, response) => void response.end(method));
    server.serve({ fetch: () => new Response(), routes: [echo] });
    const port = await server.listen("127.0.0.1", 0);
    const socket = connectTls({
      port,
      host: "127.0.0.1",
      rejectUnauthorized: false,
      ALPNProtocols: ["http/1.1"],
    });
    socket.write(request("POST /a", {}, "a"));
    expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 OK\r\n[\s\S]*POST$/);
    await server.close(100);
  });
});

describe("a request that passes Hono", () => {
  const body = "grant=a";
  it.each([
    ["with a query", request(`${tokens}?a=b`, form, body)],
    ["with a slash at the end", request(`${tokens}/`, form, body)],
    ["with another method", request("PUT /api/sample/v1/tokens", form, body)],
    ["to the operations of a path", request("OPTIONS /api/sample/v1/tokens", {})],
    ["without a body", request("GET /api/sample/v1/items?page=1", {})],
    ["with parameters in its path", request("DELETE /api/sample/v1/items/1", json, '{"reason":"a"}')],
    [
      "whose length is unknown",
      request(
        tokens,
        { ...form, "Content-Length": undefined, "Transfer-Encoding": "chunked" },
        "7\r\ngrant=a\r\n0\r\n\r\n",
      ),
    ],
    ["that is too large", request(tokens, form, `grant=${"x".repeat(65_531)}`)],
    ["without a host", request(tokens, { ...form, Host: undefined }, body)],
    ["with a host that must be parsed", request(tokens, { ...form, Host: "a b" }, body)],
    ["with the address of a host", request(tokens, { ...form, Host: "[::1]:8080" }, body)],
    ["with a user in its host", request(tokens, { ...form, Host: "me@auth.example" }, body)],
    ["with a well-known port", request(tokens, { ...form, Host: "auth.example:443" }, body)],
    ["with an address that there is not", request(tokens, { ...form, Host: "999.1.1.1:443" }, body)],
    ["with a port of five digits from 60000", request(tokens, { ...form, Host: "auth.example:60000" }, body)],
    ["with zeros before its port", request(tokens, { ...form, Host: "1.2.3.4.5:0080" }, body)],
    ["with a port that there is not", request(tokens, { ...form, Host: "auth.example:70000" }, body)],
  ])("%s", async (_name, sent) => {
    expect((await compare(sent)).isDirect).toBe(false);
  });
});
