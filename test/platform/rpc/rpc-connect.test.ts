/** Connect and gRPC-Web on an HTTP port: what is not in the table of rpc.test.ts, and hostile input. */
import { execFile } from "node:child_process";
import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { connect } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { brotliCompressSync, gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  IntrospectionService,
  IntrospectRequestSchema,
} from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { corsPolicy } from "../../../src/platform/door/cors-policy.ts";
import { rpcHeaders } from "../../../src/platform/rpc/service.ts";
import { captureLog } from "../../support/captured-log.ts";
import { envelope, rawRequest } from "../../support/grpc-client.ts";
import { type RpcServers, startRpcServers } from "../../support/rpc-servers.ts";
import { CounterService, endlessCount, silentCount } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { atRest, waitFor } from "../../support/wait-for.ts";

const root = join(import.meta.dirname, "../../..");
const path = "/auth.v1.IntrospectionService/Introspect";
const origin = "https://app.example";

let servers: RpcServers;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers({ cors: corsPolicy([origin], [rpcHeaders]) });
  cleanup.defer(() => servers.close());
});
beforeEach(() => {
  servers.completed.length = 0;
});

function post(body: string | Buffer, headers: Record<string, string> = {}, to = path): Promise<Response> {
  return fetch(`http://127.0.0.1:${servers.http1Port}${to}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body,
  });
}

/** What comes back for bytes on a connection of HTTP/1.1, once it matches. */
async function rawHttp(awaited: RegExp, ...parts: (string | Buffer)[]): Promise<string> {
  const socket = connect(servers.http1Port, "127.0.0.1");
  let answer = "";
  socket.on("data", (chunk) => {
    answer += chunk.toString("latin1");
  });
  socket.on("error", (error) => {
    answer += `<${error.message}>`;
  });
  for (const part of parts) socket.write(part);
  await waitFor(() => expect(answer).toMatch(awaited));
  socket.destroy();
  return answer;
}

describe("not a call", () => {
  it.each(["GET", "HEAD", "PUT", "DELETE"])("%s is 405 with Allow", async (method) => {
    const response = await fetch(`http://127.0.0.1:${servers.http1Port}${path}`, { method });
    expect(response.status).toBe(405);
    expect(response.headers.get("allow")).toBe("POST");
    expect(response.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  });

  it("GET over HTTP/2 is 405 with Allow", async () => {
    const { headers } = await rawRequest(servers.http2Port, { ":method": "GET", ":path": path });
    expect(headers).toMatchObject({ ":status": 405, allow: "POST" });
  });

  it("OPTIONS is answered", async () => {
    const response = await fetch(`http://127.0.0.1:${servers.http1Port}${path}`, { method: "OPTIONS" });
    expect(response.status).toBe(204);
    expect(response.headers.get("allow")).toBe("OPTIONS, POST");
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
  });

  it.each(["text/plain", "application/x-www-form-urlencoded", "application/grpc-web-text"])(
    "%s is 415",
    async (type) => {
      expect((await post("{}", { "content-type": type })).status).toBe(415);
    },
  );

  it.each([
    "POST /x.Y/Z HTTP/1.0\r\n\r\n",
    `POST ${path} HTTP/1.0\r\n\r\n`,
    `POST ${path} HTTP/1.1\r\nHost: [\r\n\r\n`,
    "POST /gatepost.test.v1.CounterService/Count HTTP/1.1\r\nHost: [\r\nContent-Type: application/connect+json\r\n\r\n",
  ])("%j gets a response, and the server lives", async (head) => {
    await rawHttp(/^HTTP\/1.1 4(00|04|15) /, head);
    expect((await post(`{"token":"active"}`)).status).toBe(200);
  });
});

describe("a method that the service does not have", () => {
  const unknown = "/auth.v1.IntrospectionService/Nope";

  it("is unimplemented in a unary call of Connect", async () => {
    const response = await post("{}", {}, unknown);
    expect(response.status).toBe(501);
    expect(await response.json()).toMatchObject({ code: "unimplemented" });
  });

  it("is unimplemented in a stream of Connect", async () => {
    const response = await post(
      envelope(Buffer.from("{}")),
      { "content-type": "application/connect+json" },
      unknown,
    );
    // Which Connect's clients read as UNIMPLEMENTED, whatever the body is.
    expect(response.status).toBe(404);
    expect(await response.json()).toMatchObject({ code: "unimplemented" });
  });

  it.each(["application/grpc-web+proto", "application/grpc"])("is unimplemented in %s", async (type) => {
    const response = await post(envelope(Buffer.alloc(0)), { "content-type": type }, unknown);
    expect(response.status).toBe(200);
    const inBody = /grpc-status: (\d+)/.exec(await response.text())?.[1];
    expect(response.headers.get("grpc-status") ?? inBody).toBe(`${Code.Unimplemented}`);
  });

  it.each([createConnectTransport, createGrpcWebTransport])(
    "is so for the clients: %o",
    async (createTransport) => {
      // A client of a later version of the service.
      const introspect = { ...IntrospectionService.method.introspect, name: "IntrospectMore" };
      const transport = createTransport({
        baseUrl: `http://127.0.0.1:${servers.http1Port}`,
        httpVersion: "1.1",
      });
      const calling = transport.unary(introspect, undefined, undefined, undefined, { token: "active" });
      await expect(calling).rejects.toMatchObject({ code: Code.Unimplemented });
    },
  );
});

it("names the status of a call in the log", async () => {
  const { logger, lines } = captureLog();
  const logging = await startRpcServers({ logger });
  cleanup.defer(() => logging.close());
  const transport = createConnectTransport({
    baseUrl: `http://127.0.0.1:${logging.http1Port}`,
    httpVersion: "1.1",
  });
  await createClient(IntrospectionService, transport).introspect({ token: "active" });
  await waitFor(() =>
    expect(lines()).toContainEqual(
      expect.objectContaining({ msg: "A call completed", protocol: "connect", rpcCode: "ok" }),
    ),
  );
});

describe("hostile input", () => {
  const token = Buffer.from(`{"token":"active"}`);
  const large = JSON.stringify({ token: "x".repeat(70_000) });
  const bomb = Buffer.alloc(60_000_000, " ");

  it.each<[string, number, string, string | Buffer, Record<string, string>]>([
    ["a message over the limit", 429, "resource_exhausted", large, {}],
    [
      "gzip over the limit when inflated",
      429,
      "resource_exhausted",
      gzipSync(large),
      { "content-encoding": "gzip" },
    ],
    ["a gzip bomb", 429, "resource_exhausted", gzipSync(bomb), { "content-encoding": "gzip" }],
    ["brotli", 501, "unimplemented", brotliCompressSync(token), { "content-encoding": "br" }],
    ["gzip that is none", 400, "invalid_argument", token, { "content-encoding": "gzip" }],
    ["an encoding that is not known", 501, "unimplemented", token, { "content-encoding": "zstd" }],
    ["broken JSON", 400, "invalid_argument", `{"token`, {}],
    ["JSON of another type", 400, "invalid_argument", `{"token":1}`, {}],
    ["deep JSON", 400, "invalid_argument", "[".repeat(60_000), {}],
    ["no message", 400, "invalid_argument", "", {}],
    [
      "bytes that are no message",
      500,
      "internal",
      Buffer.from([0xff]),
      { "content-type": "application/proto" },
    ],
    ["a timeout that is none", 400, "invalid_argument", token, { "connect-timeout-ms": "soon" }],
    ["no time at all", 504, "deadline_exceeded", `{"token":"deaf"}`, { "connect-timeout-ms": "0" }],
  ])("%s is %i %s, counted, and the server lives", async (_, status, code, body, headers) => {
    const response = await post(body, { "x-request-id": "hostile-1", ...headers });
    expect(response.status).toBe(status);
    expect(response.headers.get("x-request-id")).toBe("hostile-1");
    expect(await response.json()).toMatchObject({ code });
    expect(servers.completed).toMatchObject([{ method: "Introspect", code }]);
    expect((await post(token)).status).toBe(200);
  });

  it.each<[string, number, Buffer, Record<string, string>]>([
    ["a message over the limit", Code.ResourceExhausted, envelope(Buffer.alloc(70_000)), {}],
    ["a length of 4 GiB", Code.ResourceExhausted, envelope(Buffer.alloc(10), 0, 0xffffffff), {}],
    ["a gzip bomb", Code.ResourceExhausted, envelope(gzipSync(bomb), 1), { "grpc-encoding": "gzip" }],
    ["bytes that are no message", Code.Internal, envelope(Buffer.from([0xff])), {}],
    ["no message", Code.Unimplemented, Buffer.alloc(0), {}],
  ])("gRPC-Web: %s is code %i", async (_, code, body, headers) => {
    const response = await post(body, { "content-type": "application/grpc-web+proto", ...headers });
    expect(response.status).toBe(200);
    expect(await response.text()).toContain(`grpc-status: ${code}\r\n`);
  });

  const chunk = Buffer.concat([Buffer.from("8000\r\n"), Buffer.alloc(0x8000, " "), Buffer.from("\r\n")]);
  const chunked = `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`;

  it("a body over the limit, of no declared length, gets its response, and the connection stays open", async () => {
    const next = `0\r\n\r\nGET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
    const chunks = Array.from({ length: 10 }, () => chunk);
    const response = await rawHttp(/HTTP\/1.1 405/, chunked, ...chunks, next);
    expect(response.match(/HTTP\/1.1 \d+/g)).toEqual(["HTTP/1.1 429", "HTTP/1.1 405"]);
  });

  it("a body over the limit that never ends gets its response", async () => {
    await rawHttp(/^HTTP\/1.1 429 /, chunked, ...Array.from({ length: 10 }, () => chunk));
  });

  it.each([
    ["application/json", "Connect-Timeout-Ms: 100", /^HTTP\/1.1 504 /],
    ["application/grpc-web+proto", "Grpc-Timeout: 100m", /grpc-status: 4/],
  ])("a body that stops, as %s, meets the deadline", async (type, timeout, expected) => {
    const head = `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: ${type}\r\n${timeout}\r\nContent-Length: 18\r\n\r\n`;
    await rawHttp(expected, head, Buffer.alloc(3));
    expect(servers.completed).toMatchObject([{ code: "deadline_exceeded" }]);
  });

  it("a stream that is not read does not fill the memory", async () => {
    servers.seen.yielded = 0;
    servers.seen.closedStreams = 0;
    const json = envelope(Buffer.from(`${endlessCount}`));
    const socket = connect(servers.http1Port, "127.0.0.1");
    socket.write("POST /gatepost.test.v1.CounterService/Count HTTP/1.1\r\nHost: x\r\n");
    socket.write(`Content-Type: application/connect+json\r\nContent-Length: ${json.length}\r\n\r\n`);
    socket.write(json);
    await once(socket, "readable");
    await atRest(() => servers.seen.yielded);
    socket.destroy();
    await waitFor(() => expect(servers.completed).toMatchObject([{ code: "canceled" }]));
    await waitFor(() => expect(servers.seen.closedStreams).toBe(1));
  });
});

describe("a caller that goes away", () => {
  it.each([constants.NGHTTP2_CANCEL, constants.NGHTTP2_INTERNAL_ERROR, constants.NGHTTP2_REFUSED_STREAM])(
    "has cancelled, whatever code (%i) its stream is reset with",
    async (code) => {
      const session = connectHttp2(`http://127.0.0.1:${servers.http2Port}`);
      const stream = session.request({
        ":method": "POST",
        ":path": path,
        "content-type": "application/json",
      });
      stream.on("error", () => undefined);
      const { length } = servers.seen.asked;
      stream.end(`{"token":"silent"}`);
      await waitFor(() => expect(servers.seen.asked.slice(length)).toEqual(["silent"]));
      stream.close(code);
      await waitFor(() => expect(servers.completed).toMatchObject([{ code: "canceled" }]));
      session.destroy();
    },
  );

  it.each([
    ["just before its deadline, as its own clock is ahead", "40", "deadline_exceeded"],
    ["long before its deadline", "60000", "canceled"],
  ])("%s, counts so", async (_, timeout, code) => {
    const session = connectHttp2(`http://127.0.0.1:${servers.http2Port}`);
    const fields = { ":method": "POST", ":path": path, "content-type": "application/json" };
    const stream = session.request({ ...fields, "connect-timeout-ms": timeout });
    stream.on("error", () => undefined);
    const { length } = servers.seen.asked;
    stream.end(`{"token":"silent"}`);
    await waitFor(() => expect(servers.seen.asked.slice(length)).toEqual(["silent"]));
    stream.close(constants.NGHTTP2_CANCEL);
    await waitFor(() => expect(servers.completed).toMatchObject([{ code }]));
    session.destroy();
  });

  it("has cancelled when its connection breaks", async () => {
    const socket = connect(servers.http1Port, "127.0.0.1");
    socket.write(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n`,
    );
    const { length } = servers.seen.asked;
    socket.write(`{"token":"silent"}`);
    await waitFor(() => expect(servers.seen.asked.slice(length)).toEqual(["silent"]));
    socket.resetAndDestroy();
    await waitFor(() => expect(servers.completed).toMatchObject([{ code: "canceled" }]));
  });
});

describe("CORS", () => {
  it("answers the preflight of an origin that may call", async () => {
    const response = await fetch(`http://127.0.0.1:${servers.http1Port}${path}`, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-headers": "content-type,x-api-key" },
    });
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "access-control-allow-origin": origin,
      "access-control-allow-methods": expect.stringContaining("POST"),
      "access-control-allow-headers": expect.stringMatching(/,Content-Type,/),
      vary: "Origin",
    });
  });

  it("lets its pages read the response", async () => {
    const response = await post(`{"token":"active"}`, { origin });
    expect(response.headers.get("access-control-allow-origin")).toBe(origin);
    expect(response.headers.get("access-control-expose-headers")).toContain("X-Request-Id");
  });

  it.each(["https://evil.example", "null"])("gives nothing to %s", async (other) => {
    const response = await post(`{"token":"active"}`, { origin: other });
    expect(response.headers.get("access-control-allow-origin")).toBeNull();
  });
});

describe("buf curl, with the schema", () => {
  it.each([
    ["connect", []],
    ["grpcweb", []],
    ["connect", ["--http2-prior-knowledge"]],
    ["grpc", ["--http2-prior-knowledge"]],
  ])("speaks %s %j", async (protocol, flags) => {
    const port = flags.length > 0 ? servers.http2Port : servers.http1Port;
    const { stdout } = await promisify(execFile)(join(root, "node_modules/.bin/buf"), [
      ...["curl", "--schema", root, "--protocol", protocol, ...flags, "--data", `{"token":"active"}`],
      `http://127.0.0.1:${port}${path}`,
    ]);
    expect(JSON.parse(stdout)).toMatchObject({ active: true, userInfo: { userId: "user-1" } });
  });
});

describe("a caller without a deadline", () => {
  it("gets the default one, for the call and for its body", async () => {
    const other = await startRpcServers({ defaultDeadlineMs: 100 });
    const response = await fetch(`http://127.0.0.1:${other.http1Port}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: `{"token":"deaf"}`,
    });
    expect(response.status).toBe(504);
    const socket = connect(other.http1Port, "127.0.0.1");
    socket.write(
      `POST ${path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 18\r\n\r\n{`,
    );
    expect(String((await once(socket, "data"))[0])).toMatch(/^HTTP\/1.1 504 /);
    socket.destroy();
    await other.close();
  });
});

describe("draining", () => {
  it("ends streams and takes no new ones, and continues with other calls", async () => {
    const other = await startRpcServers();
    const baseUrl = `http://127.0.0.1:${other.http1Port}`;
    const transport = createConnectTransport({ baseUrl, httpVersion: "1.1" });
    const counter = createClient(CounterService, transport);
    const introspection = createClient(IntrospectionService, transport);
    const stream = counter.count({ value: silentCount })[Symbol.asyncIterator]();
    await stream.next();
    const slow = introspection.introspect({ token: "slow" });
    await waitFor(() => expect(other.seen.asked).toEqual(["slow"]));
    other.draining.abort();
    await expect(stream.next()).rejects.toMatchObject({ code: Code.Unavailable });
    await expect(counter.count({ value: 1 })[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      code: Code.Unavailable,
    });
    expect(await slow).toMatchObject({ active: false });
    expect(await introspection.introspect({ token: "active" })).toMatchObject({ active: true });
    await other.close();
  });
});

it("takes the longest message that is allowed", async () => {
  const message = toBinary(
    IntrospectRequestSchema,
    create(IntrospectRequestSchema, { token: "x".repeat(65_536 - 4) }),
  );
  expect(message).toHaveLength(65_536);
  expect((await post(Buffer.from(message), { "content-type": "application/proto" })).status).toBe(200);
});

it("takes the longest message that the method allows", async () => {
  const describing = (bytes: number) =>
    post(JSON.stringify("x".repeat(bytes - 2)), {}, "/gatepost.test.v1.CounterService/Describe");
  expect((await describing(131_072)).status).toBe(200);
  expect((await describing(131_073)).status).toBe(429);
});
