/**
 * Routes and responses of the binding of a document; request-body.test.ts tests the requests,
 * bind-document.test.ts what of a document can be bound at all.
 */
import { once } from "node:events";
import { connect as connectHttp2, createServer as createHttp2Server } from "node:http2";
import { getRequestListener } from "@hono/node-server";
import { beforeAll, describe, expect, it } from "vitest";
import { listening } from "../../../src/platform/http/server.ts";
import { bindContract } from "../../../src/platform/openapi/bind.ts";
import { exchange } from "../../support/http-app.ts";
import {
  type SampleApi,
  type SampleOperations,
  sampleBinding,
  sampleHandlers,
  startSampleApi,
} from "../../support/sample-api.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

let api: SampleApi;
/** The same without checks of its responses, as in production. */
let unchecked: SampleApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  api = await startSampleApi();
  cleanup.defer(() => api.close());
  unchecked = await startSampleApi({ validateResponses: false });
  cleanup.defer(() => unchecked.close());
});

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const call = (path: string, init?: RequestInit) => fetch(api.base + path, init);

describe("methods", () => {
  it.each([
    ["/v1/items", "PUT", "GET, POST, HEAD, OPTIONS"],
    ["/v1/items/a", "POST", "GET, DELETE, HEAD, OPTIONS"],
    ["/v1/items/latest", "DELETE", "GET, HEAD, OPTIONS"],
    ["/v1/items/latest", "PROPFIND", "GET, HEAD, OPTIONS"],
  ])("%s refuses %s with 405 and Allow", async (path, method, allow) => {
    const response = await call(path, { method });
    expect(response.status).toBe(405);
    expect(response.headers.get("allow")).toBe(allow);
    expect(response.headers.get("content-type")).toBe("application/problem+json");
    const body = { code: "method_not_allowed", requestId: response.headers.get("x-request-id") };
    expect(await response.json()).toMatchObject(body);
  });

  it("refuses HEAD where there is no GET, and TRACE", async () => {
    const head = await call("/v1/tokens", { method: "HEAD" });
    expect([head.status, head.headers.get("allow")]).toEqual([405, "POST, OPTIONS"]);
    const trace = "TRACE /api/sample/v1/items HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    expect(await exchange(api.port, trace)).toMatch(/^HTTP\/1.1 405 /);
  });

  it("answers OPTIONS with 204 and Allow", async () => {
    const response = await call("/v1/items", { method: "OPTIONS" });
    expect(response.status).toBe(204);
    expect(response.headers.get("allow")).toBe("GET, POST, HEAD, OPTIONS");
    expect(response.headers.get("x-request-id")).toMatch(uuid);
  });

  it("answers HEAD as GET, without the body", async () => {
    const [get, head] = await Promise.all([call("/v1/items/a"), call("/v1/items/a", { method: "HEAD" })]);
    expect(head.status).toBe(200);
    expect(head.headers.get("content-type")).toBe(get.headers.get("content-type"));
    expect(await head.text()).toBe("");
    expect((await call("/v1/items/123456789", { method: "HEAD" })).status).toBe(400);
  });

  it("passes HEAD to the handler in upper case, however HTTP/2 spells it", async () => {
    const received: string[] = [];
    const handlers: typeof sampleHandlers = {
      ...sampleHandlers,
      async getLatestItem(_request, { method }) {
        received.push(method);
        return { status: 200, body: { latest: true } };
      },
    };
    const { app } = bindContract<SampleOperations, string>({ ...sampleBinding(api.document), handlers });
    const server = createHttp2Server(getRequestListener(app.fetch));
    const session = connectHttp2(`http://127.0.0.1:${await listening(server, "127.0.0.1", 0)}`);
    for (const method of ["GET", "HEAD", "head"]) {
      const stream = session.request({ ":method": method, ":path": "/api/sample/v1/items/latest" });
      await once(stream.resume(), "close");
    }
    session.close();
    server.close();
    expect(received).toEqual(["GET", "HEAD", "HEAD"]);
  });

  it.each(["/v1/nothing", "/v1/items/", "/v1/items/a/b", "/../v1/items"])(
    "knows nothing of %s",
    async (path) => {
      const response = await call(path);
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ code: "not_found", status: 404 });
    },
  );
});

describe("Accept", () => {
  it.each([
    [undefined, 200],
    ["", 200],
    ["*/*", 200],
    ["application/json", 200],
    ["Application/JSON; charset=utf-8", 200],
    ["application/*;q=0.1", 200],
    ["text/html, application/xhtml+xml, */*;q=0.8", 200],
    ["text/html;q=0.9, application/json ; q=0.001", 200],
    ["application/*;q=0, application/json", 200],
    ["application/problem+json", 200],
    ["text/html, Application/Problem+JSON;q=0.1", 200],
    ["application/*+json", 200],
    ["application/json;q=0, application/problem+json", 200],
    ["application/problem+json;q=0", 406],
    ["application/*+json;q=0, text/html", 406],
    ["application/jwk-set+json", 406],
    ["text/html", 406],
    ["application/xml, text/*", 406],
    ["application/jsonp", 406],
    ["application/json;q=0", 406],
    ["*/*, application/json;q=0.0", 406],
    ["*/*;q=1, application/*;q=0", 406],
  ])("%s is answered %i", async (accept, status) => {
    // fetch would send a value of its own.
    const line = accept === undefined ? "" : `Accept: ${accept}\r\n`;
    const request = `GET /api/sample/v1/items HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${line}\r\n`;
    expect(await exchange(api.port, request)).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  });

  it("is of no account to an operation that does not declare 406", async () => {
    expect((await call("/v1/items/a", { headers: { accept: "text/html" } })).status).toBe(200);
  });
});

describe("credentials", () => {
  it("are required with 401 and WWW-Authenticate before anything else is checked", async () => {
    for (const headers of [{}, { "X-Key": "wrong" }, { "X-Badge": "wrong" }]) {
      const response = await call("/v1/secrets", { headers });
      expect(response.status).toBe(401);
      expect(response.headers.get("www-authenticate")).toBe('Basic realm="sample", charset="UTF-8"');
      expect(await response.json()).toMatchObject({
        code: "unauthenticated",
        title: "Not authenticated",
        detail:
          "Credentials are missing or wrong. Send the client's id and secret in the Authorization header, scheme Basic.",
      });
    }
  });

  it.each([
    [undefined, 401, 'Bearer realm="sample"'],
    ["Basic cmlnaHQ=", 401, 'Bearer realm="sample"'],
    ["Bearers right", 401, 'Bearer realm="sample"'],
    ["Bearer wrong", 401, 'Bearer realm="sample", error="invalid_token"'],
    ["bearer", 401, 'Bearer realm="sample", error="invalid_token"'],
    ["Bearer other", 403, 'Bearer realm="sample", error="insufficient_scope"'],
    ["Bearer right", 200, null],
  ])(
    "of the Bearer scheme, as in %s, are answered %i and the challenge of RFC 6750",
    async (sent, status, challenge) => {
      const response = await call(
        "/v1/parcels",
        sent === undefined ? {} : { headers: { authorization: sent } },
      );
      expect(response.status).toBe(status);
      expect(response.headers.get("www-authenticate")).toBe(challenge);
      const detail =
        "Credentials are missing or wrong. Send an access token in the Authorization header, scheme Bearer.";
      if (status === 401) expect(await response.json()).toMatchObject({ code: "unauthenticated", detail });
    },
  );

  it("of any one scheme are enough, and tell the handler who calls", async () => {
    const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const key = await call("/v1/secrets", { headers: { "X-Key": "right", traceparent } });
    expect(await key.json()).toEqual({ caller: "key", traceparent });
    const headers = { "X-Key": "wrong", "X-Badge": "right", traceparent: "garbage" };
    expect(await (await call("/v1/secrets", { headers })).json()).toEqual({ caller: "badge" });
  });

  it("may be refused in the scheme's own way", async () => {
    const response = await fetch(`${unchecked.base}/v1/secrets`, { headers: { "X-Badge": "stolen" } });
    expect(response.status).toBe(429);
  });
});

describe("X-Request-Id", () => {
  it("is used if it matches the pattern, on every kind of response", async () => {
    const headers = { "X-Request-Id": `~${"x".repeat(126)}!` };
    for (const [path, method] of [
      ["/v1/items", "GET"],
      ["/v1/items", "OPTIONS"],
      ["/v1/items", "PATCH"],
      ["/v1/items", "POST"],
      ["/v1/secrets", "GET"],
      ["/v1/nothing", "GET"],
    ] as const) {
      const response = await call(path, { method, headers });
      expect(response.headers.get("x-request-id"), `${method} ${path}`).toBe(headers["X-Request-Id"]);
      const text = await response.text();
      if (response.status >= 400) expect(JSON.parse(text).requestId).toBe(headers["X-Request-Id"]);
    }
  });

  it("is made if it is absent, and each time another", async () => {
    const ids = await Promise.all(
      [1, 2].map(async () => (await call("/v1/items")).headers.get("x-request-id")),
    );
    for (const id of ids) expect(id).toMatch(uuid);
    expect(new Set(ids).size).toBe(2);
  });

  it.each(["a b", "x".repeat(129), "caf\xe9", "a\tb", ""])("is made anew if it is %j", async (id) => {
    expect(
      (await call("/v1/items", { headers: { "X-Request-Id": id } })).headers.get("x-request-id"),
    ).toMatch(uuid);
  });
});

describe("responses", () => {
  it.each([
    ['{"grant":"a","grant":"b"}', "/body gives 'grant' more than once"],
    ['{"x":{"\\u00fc":1,"ü":2}}', "/body/x gives '%C3%BC' more than once"],
    ['{"k\\\\":{"n":1e999}}', "/body/k%5C/n is a number out of range"],
    ['{"a\\ud800":"b"}', "/body has a member name that contains half of a surrogate pair"],
    ["grant=a&%C3%BC=1&%C3%BC=2", "/body/%C3%BC is given more than once"],
    ["grant=a&%F0%9F%94%91=%00", "/body/%F0%9F%94%91 contains a NUL character"],
    ["grant=a&q%22%0A=1&q%22%0A=2", "/body/q'%0A is given more than once"],
    ["grant=a&q%5C%7F=1&q%5C%7F=2", "/body/q%5C%7F is given more than once"],
  ])("to %s over OAuth have a description in the characters of RFC 6749", async (body, description) => {
    const type = body.startsWith("{") ? "json" : "x-www-form-urlencoded";
    const headers = { "content-type": `application/${type}` };
    const response = await call("/v1/tokens", { method: "POST", headers, body });
    expect(await response.json()).toEqual({
      error: "invalid_request",
      error_description: `The request is not valid: ${description}.`,
    });
  });

  it("carry the headers that the document fixes, on success and error alike", async () => {
    const form = (text: string) => call("/v1/tokens", { method: "POST", body: new URLSearchParams(text) });
    expect((await form("grant=g")).headers.get("pragma")).toBe("no-cache");
    expect((await form("")).headers.get("pragma")).toBe("no-cache");
    expect((await call("/v1/tokens")).headers.get("pragma")).toBe("no-cache");
    const headers = { "content-type": "application/json" };
    const created = await call("/v1/items", { method: "POST", headers, body: '{"name":"n"}' });
    expect(created.status).toBe(201);
    expect(created.headers.get("cache-control")).toBe("no-store");
    expect(created.headers.get("location")).toBe("/1");
  });

  it.each([
    ["GET", "application/x-www-form-urlencoded", 405],
    ["POST", "text/plain", 415],
    ["POST", "application/x-www-form-urlencoded", 400],
  ])("to an OAuth operation are OAuth's errors (%s %s: %i)", async (method, type, status) => {
    const response = await call("/v1/tokens", { method, headers: { "content-type": type } });
    expect(response.status).toBe(status);
    expect(response.headers.get("content-type")).toBe("application/json");
    const body = { error: "invalid_request", error_description: expect.any(String) };
    expect(await response.json()).toEqual(body);
  });

  it("state when to retry if a dependency is unavailable, and the log has the cause", async () => {
    const response = await call("/v1/behaviours/away");
    expect(response.status).toBe(503);
    expect(response.headers.get("retry-after")).toBe("7");
    const text = await response.text();
    expect(JSON.parse(text)).toMatchObject({ code: "unavailable", title: "Service unavailable" });
    expect(text).not.toMatch(/ECONNREFUSED|10\.0\.0\.7/);
    const line = api.log.lines().findLast(({ level }) => level === "warn");
    expect(JSON.stringify(line)).toContain("ECONNREFUSED");
  });

  it("to a defect say nothing but the request id, which finds the cause in the log", async () => {
    const response = await call("/v1/behaviours/defect");
    expect(response.status).toBe(500);
    const text = await response.text();
    const requestId = response.headers.get("x-request-id");
    expect(JSON.parse(text)).toEqual({
      type: "about:blank",
      title: "Internal server error",
      status: 500,
      detail: "Something went wrong here. Quote the request id when you report it.",
      code: "internal_error",
      requestId,
    });
    const line = api.log.lines().find((each) => each["requestId"] === requestId && each["level"] === "error");
    expect(line).toMatchObject({ operation: "behave", msg: "A request failed" });
    expect(JSON.stringify(line)).toContain("account_numbers");
  });

  it("are passed to the observer", async () => {
    await call("/v1/behaviours/good");
    expect(api.completed.at(-1)).toEqual({
      service: "sample",
      operation: "behave",
      status: 200,
      seconds: expect.any(Number),
    });
  });
});

describe("a handler that breaks the contract", () => {
  it.each([
    ["undeclared-status", "status 202 is not declared"],
    ["undeclared-error", "status 403 is not declared"],
    ["missing-header", "header X-Mood is missing"],
    ["undeclared-header", "header x-more is not declared"],
    ["wrong-body", "body/greeting must be string"],
    ["undeclared-member", "body has an undeclared member mood"],
    ["no-body", "the body is missing"],
  ])("is a 500 if responses are checked, and is logged: %s", async (name, violation) => {
    const response = await call(`/v1/behaviours/${name}`);
    expect(response.status).toBe(500);
    expect(await response.json()).toMatchObject({ code: "internal_error" });
    const line = api.log.lines().findLast(({ level }) => level === "error");
    expect(line).toMatchObject({
      operation: "behave",
      msg: "A response violates the contract",
      violations: [violation],
      requestId: response.headers.get("x-request-id"),
    });
    expect(api.completed.at(-1)).toMatchObject({ status: 500 });
  });

  it.each([
    ["undeclared-status", 202],
    ["undeclared-error", 403],
    ["wrong-body", 200],
    ["undeclared-member", 200],
  ])("is let through in production: %s", async (name, status) => {
    expect((await fetch(`${unchecked.base}/v1/behaviours/${name}`)).status).toBe(status);
  });

  it("is a problem even if JSON cannot hold the body", async () => {
    for (const { base, completed } of [api, unchecked]) {
      const response = await fetch(`${base}/v1/behaviours/no-json`);
      expect(response.status).toBe(500);
      expect(await response.json()).toMatchObject({ code: "internal_error" });
      expect(completed.at(-1)).toMatchObject({ operation: "behave", status: 500 });
    }
  });
});
