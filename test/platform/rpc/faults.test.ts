/** What callers do wrong, with the status that each protocol has for it, over each way in which requests come. */
import { once } from "node:events";
import { createServer, request as httpRequest } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import type { Server } from "node:net";
import { gzipSync } from "node:zlib";
import { create, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import { IntrospectRequestSchema } from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { HttpResponse } from "../../../src/platform/door/responses.ts";
import { withoutQuery } from "../../../src/platform/door/targets.ts";
import { createRpcHandler } from "../../../src/platform/rpc/handler.ts";
import { envelope, rawRequest } from "../../support/grpc-client.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const path = "/auth.v1.IntrospectionService/Introspect";
const record = recorder();
const handler = createRpcHandler({ ...record, ...testServices() });
const routeOf = (url = "") =>
  handler.routes.find(({ path }) => path === withoutQuery(url)) ?? handler.unknown;
const core = createHttp2Server().on("stream", (stream, headers) => {
  const route = handler.routes.find((one) => one.path === headers[":path"]) ?? handler.unknown;
  void route.handleStream(stream, headers);
});
const ways: [string, Server][] = [
  [
    "node:http",
    createServer(
      { ServerResponse: HttpResponse },
      (request, response) => void routeOf(request.url).handle(request, response),
    ),
  ],
  ["node:http2, by its streams", core],
  [
    "node:http2, behind its compatibility objects",
    createHttp2Server((request, response) => void routeOf(request.url).handle(request, response)),
  ],
];

const cleanup = suiteCleanup();
beforeAll(async () => {
  for (const [, server] of ways) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanup.defer(() => void server.close());
  }
});
beforeEach(() => {
  record.completed.length = 0;
});

type Headers = Record<string, string>;

interface Answer {
  readonly headers: Readonly<Record<string, unknown>>;
  readonly trailers: Readonly<Record<string, unknown>>;
  readonly body: Buffer;
}

function overHttp1(port: number, headers: Headers, body: Buffer): Promise<Answer> {
  const { ":method": method = "POST", ":path": to = path, ...fields } = headers;
  return new Promise((resolve, reject) => {
    const request = httpRequest({ port, method, path: to, headers: fields, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => {
        const status = { ":status": response.statusCode };
        resolve({
          headers: { ...response.headers, ...status },
          trailers: response.trailers,
          body: Buffer.concat(chunks),
        });
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

/** The HTTP status, or that of the call: a number in gRPC and gRPC-Web, a word in Connect. */
function statusOf({ headers, trailers, body }: Answer): number | string {
  if (headers[":status"] === 200) {
    const inBody = /grpc-status: (\d+)\r\n/.exec(body.toString("latin1"))?.[1];
    return Number(trailers["grpc-status"] ?? headers["grpc-status"] ?? inBody ?? 0);
  }
  const isJson = headers["content-type"] === "application/json" && Number(headers[":status"]) !== 415;
  return isJson ? JSON.parse(body.toString()).code : Number(headers[":status"]);
}

const message = Buffer.from(toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema)));
const token = Buffer.from(
  toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token: "active" })),
);
const long = Buffer.concat([Buffer.from([0x0a, 0x80, 0x80, 0x04]), Buffer.alloc(65_536, "x")]);
const gzip = (bytes: Buffer) => gzipSync(bytes);

interface Row {
  readonly fault: string;
  /** Of gRPC and gRPC-Web. */
  readonly grpc?: Code;
  readonly connect?: Code;
  /** The message or the whole body. */
  readonly bytes?: Buffer;
  readonly body?: Buffer;
  readonly isCompressed?: boolean;
  readonly encoding?: string;
  readonly timeout?: string;
  readonly json?: true;
}

const rows: Row[] = [
  { fault: "none", grpc: 0 as Code, connect: 0 as Code },
  { fault: "a malformed message", grpc: Code.Internal, connect: Code.Internal, bytes: Buffer.from([0xff]) },
  {
    fault: "a malformed message in JSON",
    grpc: Code.InvalidArgument,
    connect: Code.InvalidArgument,
    bytes: Buffer.from(`{"token":1}`),
    json: true,
  },
  { fault: "no message", grpc: Code.Unimplemented, body: Buffer.alloc(0) },
  {
    fault: "two messages",
    grpc: Code.Unimplemented,
    body: Buffer.concat([envelope(token), envelope(message)]),
  },
  { fault: "half a prefix", grpc: Code.Internal, body: Buffer.alloc(3) },
  { fault: "half a message", grpc: Code.Internal, body: envelope(token).subarray(0, 8) },
  { fault: "unknown flags", grpc: Code.Internal, body: envelope(token, 2) },
  {
    fault: "a message that is too long",
    grpc: Code.ResourceExhausted,
    connect: Code.ResourceExhausted,
    bytes: long,
  },
  {
    fault: "a message that is too long when inflated",
    grpc: Code.ResourceExhausted,
    connect: Code.ResourceExhausted,
    bytes: gzip(long),
    isCompressed: true,
    encoding: "gzip",
  },
  {
    fault: "gzip that is none",
    grpc: Code.Internal,
    connect: Code.InvalidArgument,
    bytes: token,
    isCompressed: true,
    encoding: "gzip",
  },
  {
    fault: "an encoding that is not stated",
    grpc: Code.Internal,
    body: envelope(gzip(token), 1),
  },
  ...["br", "deflate", "zstd"].map((encoding) => ({
    fault: `the encoding ${encoding}`,
    grpc: Code.Unimplemented,
    connect: Code.Unimplemented,
    encoding,
  })),
  ...["soon", "", "-1", "123456789012"].map((timeout) => ({
    fault: `the timeout ${JSON.stringify(timeout)}`,
    grpc: Code.Internal,
    connect: Code.InvalidArgument,
    timeout,
  })),
];

describe.each(ways)("over %s", (way, server) => {
  function send(headers: Headers, body: Buffer): Promise<Answer> {
    const address = server.address();
    const port = typeof address === "object" && address ? address.port : 0;
    return way === "node:http"
      ? overHttp1(port, headers, body)
      : rawRequest(port, { ":path": path, ...headers }, body.length > 0 ? body : undefined);
  }

  async function sent(protocol: "grpc" | "grpc-web", row: Row): Promise<Answer> {
    const { bytes = token, isCompressed, encoding, timeout, json } = row;
    const headers = {
      "content-type": `application/${protocol}${json ? "+json" : "+proto"}`,
      ...(encoding !== undefined && { "grpc-encoding": encoding }),
      ...(timeout !== undefined && { "grpc-timeout": timeout }),
    };
    return send(headers, row.body ?? envelope(bytes, isCompressed ? 1 : 0));
  }

  const ofGrpc = rows.flatMap((row) =>
    row.grpc === undefined ? [] : [{ ...row, grpc: row.grpc, isCounted: true }],
  );
  describe.each(["grpc", "grpc-web"] as const)("%s", (protocol) => {
    it.each(ofGrpc)("$fault is status $grpc, and counted", async (row) => {
      const answer = await sent(protocol, row);
      expect(statusOf(answer)).toBe(row.grpc);
      expect(answer.headers["x-request-id"]).toMatch(/^[0-9a-f-]{36}$/);
      expect(answer.headers["grpc-accept-encoding"]).toBe(
        row.fault.startsWith("the encoding") ? "gzip" : undefined,
      );
      expect(record.completed).toMatchObject([{ protocol, code: row.grpc ? codeToString(row.grpc) : "ok" }]);
    });
  });

  const ofConnect = rows.flatMap((row) =>
    row.connect === undefined ? [] : [{ ...row, code: row.connect ? codeToString(row.connect) : 0 }],
  );
  it.each(ofConnect)("connect: $fault is $code, and counted", async (row) => {
    const { bytes = token, encoding, timeout, json } = row;
    const headers = {
      "content-type": `application/${json ? "json" : "proto"}`,
      ...(encoding !== undefined && { "content-encoding": encoding }),
      ...(timeout !== undefined && { "connect-timeout-ms": timeout }),
    };
    const answer = await send(headers, bytes);
    expect(statusOf(answer)).toBe(row.code);
    expect(answer.headers["accept-encoding"]).toBe(row.fault.startsWith("the encoding") ? "gzip" : undefined);
    expect(record.completed).toMatchObject([{ protocol: "connect", code: row.code || "ok" }]);
  });

  it.each(["GET", "PUT", "HEAD"])("%s is 405, in every protocol, and no call", async (method) => {
    for (const type of ["application/grpc", "application/grpc-web", "application/json"]) {
      const answer = await send({ ":method": method, "content-type": type }, Buffer.alloc(0));
      expect(answer.headers).toMatchObject({ ":status": 405, allow: "POST" });
    }
    expect(record.completed).toEqual([]);
  });

  it.each(["application/json; charset=utf-8", "application/GRPC-web+json;charset=UTF-8"])(
    "content type %s is served, whatever the case of the method",
    async (type) => {
      const body = Buffer.from(`{"token":"active"}`);
      const isConnect = type.startsWith("application/json");
      const answer = await send(
        { ":method": "post", "content-type": type },
        isConnect ? body : envelope(body),
      );
      expect(statusOf(answer)).toBe(0);
      expect(record.completed).toMatchObject([{ code: "ok" }]);
    },
  );

  it.each([
    ...["application/grpc+thrift", "application/grpc-web-text", "application/grpc;foo", "application/grpcx"],
    ...["application/connect+proto", "application/xml", "application/grpc; charset=latin1"],
  ])("content type %s is 415, and no call", async (type) => {
    const answer = await send({ "content-type": type }, envelope(token));
    expect(answer.headers[":status"]).toBe(415);
    expect(JSON.parse(answer.body.toString()).message).toContain("application/grpc-web");
    expect(record.completed).toEqual([]);
  });

  it("a path of no method is UNIMPLEMENTED in each protocol, and 404 otherwise", async () => {
    const to = { ":path": "/auth.v1.IntrospectionService/Nope" };
    const ask = (type: string) => send({ ...to, "content-type": type }, envelope(token));
    for (const type of ["application/grpc", "application/grpc-web+proto"])
      expect(statusOf(await ask(type))).toBe(Code.Unimplemented);
    const unary = await ask("application/json");
    expect([unary.headers[":status"], statusOf(unary)]).toEqual([501, "unimplemented"]);
    expect((await ask("application/connect+json")).body.toString()).toContain(`"code":"unimplemented"`);
    const other = await ask("text/plain");
    expect(other.headers[":status"]).toBe(404);
    expect(other.body.toString()).toContain("SERVER_PORT");
    const got = await send({ ...to, ":method": "GET", "content-type": "text/plain" }, Buffer.alloc(0));
    expect(got.headers[":status"]).toBe(404);
  });
});
