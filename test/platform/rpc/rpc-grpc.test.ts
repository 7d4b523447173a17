/** Native gRPC: its clients, health, reflection, hostile input, and the end of the server. */
import { execFile } from "node:child_process";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { once } from "node:events";
import { connect, type ServerHttp2Stream } from "node:http2";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { credentials, status } from "@grpc/grpc-js";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { IntrospectRequestSchema } from "../../../gen/proto/auth/v1/introspection_pb.ts";
import {
  createGrpcServer,
  type GrpcServer,
  type GrpcServerOptions,
} from "../../../src/platform/rpc/grpc-server.ts";
import type { RpcService } from "../../../src/platform/rpc/service.ts";
import { envelope, GrpcClient, loadMethod, rawRequest } from "../../support/grpc-client.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { type RpcServers, recorder, startRpcServers } from "../../support/rpc-servers.ts";
import { endlessCount, testServices } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { atRest, waitFor } from "../../support/wait-for.ts";

const root = join(import.meta.dirname, "../../..");
const service = "auth.v1.IntrospectionService";
const path = `/${service}/Introspect`;
const introspect = loadMethod("auth/v1/introspection.proto", service, "Introspect", [join(root, "proto")]);
const healthProto = join(root, "proto/grpc/health/v1/health.proto");
const countProto = join(import.meta.dirname, "../../support/proto/counter.proto");
const count = loadMethod(countProto, "gatepost.test.v1.CounterService", "Count");

let servers: RpcServers;
let client: GrpcClient;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers();
  cleanup.defer(() => servers.close());
  client = new GrpcClient(servers.grpcPort);
  cleanup.defer(() => client.close());
});

/** A server of the test services, or of these; it does not listen yet. */
function serving(
  options: GrpcServerOptions,
  services: readonly RpcService[] = testServices().services,
): GrpcServer {
  const server = createGrpcServer(options);
  server.serve(services);
  return server;
}

function message(token: string): Buffer {
  return Buffer.from(toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token })));
}

/** The status, wherever it is. */
async function statusOf(body: Buffer | undefined, headers: Record<string, string> = {}): Promise<number> {
  const response = await rawRequest(servers.grpcPort, { ":path": path, ...headers }, body);
  expect(response.headers[":status"]).toBe(200);
  return Number(response.trailers["grpc-status"] ?? response.headers["grpc-status"]);
}

describe("@grpc/grpc-js with the .proto file", () => {
  it("gets a response", async () => {
    expect(await client.unary(introspect, { token: "active" })).toMatchObject({
      active: true,
      sub: "user-1",
    });
  });

  it("gets status, details, trailing metadata", async () => {
    const error: unknown = await client
      .unary(introspect, { token: "busy" })
      .catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: status.RESOURCE_EXHAUSTED, details: "Wait." });
    expect(Object(error).metadata.get("retry-after")).toEqual(["7"]);
  });

  it("has its deadline honoured", async () => {
    const calling = client.unary(introspect, { token: "silent" }, {}, { deadline: Date.now() + 100 });
    await expect(calling).rejects.toMatchObject({ code: status.DEADLINE_EXCEEDED });
  });

  it("reads a stream", async () => {
    const messages: unknown[] = [];
    for await (const one of client.serverStream(count, { value: 3 })) messages.push(one);
    expect(messages).toEqual([{ value: "1" }, { value: "2" }, { value: "3" }]);
  });

  it("is not overrun by a stream that it does not read", async () => {
    servers.seen.yielded = 0;
    const session = connect(`http://127.0.0.1:${servers.grpcPort}`);
    const headers = { ":method": "POST", ":path": count.path, "content-type": "application/grpc" };
    const stream = session.request({ ...headers, te: "trailers" });
    stream.end(envelope(count.requestSerialize({ value: endlessCount })));
    await once(stream, "response");
    expect(await atRest(() => servers.seen.yielded)).toBeLessThan(30);
    session.destroy();
  });

  it("gets a response over TLS", async () => {
    const server = serving({ ...recorder(), tls: localhostCertificate });
    const port = await server.listen("127.0.0.1", 0);
    const secured = new GrpcClient(port, credentials.createSsl(Buffer.from(localhostCertificate.cert)));
    expect(await secured.unary(introspect, { token: "active" })).toMatchObject({ active: true });
    secured.close();
    await server.close(100);
  });
});

it("holds no call by its stream once that has closed", async () => {
  const streams: ServerHttp2Stream[] = [];
  const note = (message: unknown) => streams.push((message as { stream: ServerHttp2Stream }).stream);
  subscribe("http2.server.stream.created", note);
  await client.unary(introspect, { token: "active" });
  unsubscribe("http2.server.stream.created", note);
  await expect.poll(() => streams.map((stream) => stream.eventNames())).toEqual([[]]);
});

describe("buf curl, by reflection alone", () => {
  const curl = (method: string, data: string) =>
    promisify(execFile)(join(root, "node_modules/.bin/buf"), [
      ...["curl", "--reflect", "--protocol", "grpc", "--http2-prior-knowledge", "--data", data],
      `http://127.0.0.1:${servers.grpcPort}/${method}`,
    ]);

  it("calls a method", async () => {
    const { stdout } = await curl(`${service}/Introspect`, `{"token":"active"}`);
    expect(JSON.parse(stdout)).toMatchObject({ active: true, userInfo: { userId: "user-1" } });
  });

  it("calls a method whose file imports another", async () => {
    const { stdout } = await curl("gatepost.test.v1.CounterService/Count", "2");
    expect(stdout.trim().split("\n")).toEqual([`"1"`, `"2"`]);
  });

  it("asks for health", async () => {
    const { stdout } = await curl("grpc.health.v1.Health/List", "{}");
    const serving = { status: "SERVING" };
    expect(JSON.parse(stdout)).toEqual({
      statuses: { "": serving, [service]: serving, "gatepost.test.v1.CounterService": serving },
    });
  });
});

describe.each(["v1", "v1alpha"])("reflection %s", (version) => {
  const reflection = loadMethod(
    join(root, `proto/grpc/reflection/${version}/reflection.proto`),
    `grpc.reflection.${version}.ServerReflection`,
    "ServerReflectionInfo",
  );

  async function ask(question: object): Promise<unknown> {
    const stream = client.bidiStream(reflection);
    const answer = once(stream, "data");
    stream.write(question);
    stream.end();
    const [first] = await answer;
    return first;
  }

  it("lists the services", async () => {
    expect(await ask({ listServices: "*" })).toMatchObject({
      listServicesResponse: {
        service: [
          { name: service },
          { name: "gatepost.test.v1.CounterService" },
          { name: "grpc.health.v1.Health" },
        ],
      },
    });
  });

  it.each([
    ["auth.v1.IntrospectionService", ["auth/v1/introspection.proto"]],
    ["auth.v1.UserInfo", ["auth/v1/introspection.proto"]],
    [
      "gatepost.test.v1.CounterService.Count",
      ["gatepost/test/v1/counter.proto", "google/protobuf/wrappers.proto"],
    ],
  ])("gives the files of %s", async (fileContainingSymbol, names) => {
    const answer = await ask({ fileContainingSymbol });
    expect(answer).toHaveProperty("fileDescriptorResponse.fileDescriptorProto");
    const files = Object(answer).fileDescriptorResponse.fileDescriptorProto.map((bytes: Buffer) =>
      fromBinary(FileDescriptorProtoSchema, bytes),
    );
    expect(files.map((file: { name: string }) => file.name)).toEqual(names);
  });

  it("gives a file by its name", async () => {
    expect(await ask({ fileByFilename: "auth/v1/introspection.proto" })).toMatchObject({
      fileDescriptorResponse: { fileDescriptorProto: [expect.any(Buffer)] },
    });
  });

  it("knows no extensions of its messages", async () => {
    const containingType = "auth.v1.UserInfo";
    expect(await ask({ allExtensionNumbersOfType: containingType })).toMatchObject({
      allExtensionNumbersResponse: { baseTypeName: containingType },
    });
    const notFound = { errorResponse: { errorCode: status.NOT_FOUND } };
    expect(await ask({ allExtensionNumbersOfType: "no.such.Thing" })).toMatchObject(notFound);
    const fileContainingExtension = { containingType, extensionNumber: 100 };
    expect(await ask({ fileContainingExtension })).toMatchObject(notFound);
  });

  it.each(["no.such.Thing", ""])("has no file of %j", async (fileContainingSymbol) => {
    expect(await ask({ fileContainingSymbol })).toMatchObject({
      errorResponse: { errorCode: status.NOT_FOUND },
    });
  });
});

describe("health", () => {
  const check = loadMethod(healthProto, "grpc.health.v1.Health", "Check");
  const watch = loadMethod(healthProto, "grpc.health.v1.Health", "Watch");
  afterEach(() => servers.grpc.setServing(true));

  it.each(["", service, "gatepost.test.v1.CounterService"])("is answered for %j", async (name) => {
    expect(await client.unary(check, { service: name })).toEqual({ status: "SERVING" });
    servers.grpc.setServing(false);
    expect(await client.unary(check, { service: name })).toEqual({ status: "NOT_SERVING" });
  });

  it("is not known of other services", async () => {
    await expect(client.unary(check, { service: "other" })).rejects.toMatchObject({ code: status.NOT_FOUND });
  });

  it("is listed for the server and each service", async () => {
    servers.grpc.setServing(false, testServices().services.slice(0, 1));
    const list = loadMethod(healthProto, "grpc.health.v1.Health", "List");
    expect(await client.unary(list, {})).toEqual({
      statuses: {
        "": { status: "NOT_SERVING" },
        [service]: { status: "NOT_SERVING" },
        "gatepost.test.v1.CounterService": { status: "SERVING" },
      },
    });
  });

  it.each(["other", "change", "newListener"])("of an unknown service can be watched: %s", async (name) => {
    const states: unknown[] = [];
    const stream = client.serverStream(watch, { service: name });
    stream.on("error", () => undefined);
    stream.on("data", (state) => states.push(state));
    await waitFor(() => expect(states).toHaveLength(1));
    servers.grpc.setServing(false);
    expect(await client.unary(check, { service })).toEqual({ status: "NOT_SERVING" });
    expect(states).toEqual([{ status: "SERVICE_UNKNOWN" }]);
    stream.cancel();
  });

  it("is not counted among the calls of the services", async () => {
    servers.completed.length = 0;
    await client.unary(check, { service });
    await client.unary(introspect, { token: "active" });
    expect(servers.completed).toMatchObject([{ method: "Introspect" }]);
  });

  it("is sent to watching clients, once for each change", async () => {
    const states: unknown[] = [];
    const stream = client.serverStream(watch, { service });
    stream.on("error", () => undefined);
    stream.on("data", (state) => states.push(state));
    await waitFor(() => expect(states).toHaveLength(1));
    servers.grpc.setServing(true);
    servers.grpc.setServing(false);
    servers.grpc.setServing(true);
    await waitFor(() =>
      expect(states).toEqual([{ status: "SERVING" }, { status: "NOT_SERVING" }, { status: "SERVING" }]),
    );
    stream.cancel();
  });

  it("is NOT_SERVING until setServing is called", async () => {
    const server = serving({ ...recorder() });
    const other = new GrpcClient(await server.listen("127.0.0.1", 0));
    expect(await other.unary(check, { service: "" })).toEqual({ status: "NOT_SERVING" });
    other.close();
    await server.close(100);
  });
});

describe("hostile input", () => {
  // A megabyte would do; this shows that it is not inflated whole.
  const bomb = gzipSync(Buffer.alloc(60_000_000));
  const token = message("active");
  it.each<[string, number, Buffer | undefined, Record<string, string>]>([
    ["a message at the limit", status.OK, envelope(message("x".repeat(65_536 - 4))), {}],
    ["a message over the limit", status.RESOURCE_EXHAUSTED, envelope(message("x".repeat(65_536 - 3))), {}],
    ["a length of 4 GiB", status.RESOURCE_EXHAUSTED, envelope(token, 0, 0xffffffff), {}],
    ["gzip", status.OK, envelope(gzipSync(token), 1), { "grpc-encoding": "gzip" }],
    [
      "gzip over the limit when inflated",
      status.RESOURCE_EXHAUSTED,
      envelope(gzipSync(message("x".repeat(70_000))), 1),
      { "grpc-encoding": "gzip" },
    ],
    ["a gzip bomb", status.RESOURCE_EXHAUSTED, envelope(bomb, 1), { "grpc-encoding": "gzip" }],
    ["gzip that is none", status.INTERNAL, envelope(token, 1), { "grpc-encoding": "gzip" }],
    [
      "gzip cut short",
      status.INTERNAL,
      envelope(gzipSync(token).subarray(0, 12), 1),
      { "grpc-encoding": "gzip" },
    ],
    ["an encoding that is not known", status.UNIMPLEMENTED, envelope(token, 1), { "grpc-encoding": "zstd" }],
    ["bytes that are no message", status.INTERNAL, envelope(Buffer.from([0xff, 0xff, 0xff])), {}],
    ["groups in groups", status.INTERNAL, envelope(Buffer.alloc(60_000, 0x23)), {}],
    ["no message", status.UNIMPLEMENTED, undefined, {}],
    ["two messages", status.UNIMPLEMENTED, Buffer.concat([envelope(token), envelope(token)]), {}],
    ["a method that there is not", status.UNIMPLEMENTED, envelope(token), { ":path": `/${service}/Nope` }],
    [
      "a service that there is not",
      status.UNIMPLEMENTED,
      envelope(token),
      { ":path": "/__proto__/constructor" },
    ],
    ["a timeout that is none", status.INTERNAL, envelope(token), { "grpc-timeout": "soon" }],
    ["no time at all", status.DEADLINE_EXCEEDED, envelope(message("silent")), { "grpc-timeout": "0m" }],
    ["metadata outside ASCII", status.OK, envelope(token), { authorization: "Basic é" }],
  ])("%s is answered with %i, and the server lives", async (_, expected, body, headers) => {
    expect(await statusOf(body, headers)).toBe(expected);
    expect(await statusOf(envelope(token))).toBe(status.OK);
  });

  it("counts a message that cannot be decoded, and returns the request id", async () => {
    servers.completed.length = 0;
    const headers = { ":path": path, "x-request-id": "bad-1" };
    const response = await rawRequest(servers.grpcPort, headers, envelope(Buffer.from([0xff])));
    expect(response.headers["x-request-id"]).toBe("bad-1");
    expect(servers.completed).toMatchObject([{ method: "Introspect", code: "internal" }]);
  });

  it("writes nothing to stderr of what was sent", async () => {
    const write = vi.spyOn(console, "error").mockImplementation(() => undefined);
    await statusOf(envelope(token), { authorization: "Basic é" });
    expect(write).not.toHaveBeenCalled();
    write.mockRestore();
  });
});

describe("a caller without a deadline", () => {
  it("gets the default one", async () => {
    const record = recorder();
    const server = serving({ ...record, defaultDeadlineMs: 100 });
    const port = await server.listen("127.0.0.1", 0);
    const other = new GrpcClient(port);
    await expect(other.unary(introspect, { token: "deaf" })).rejects.toMatchObject({
      code: status.DEADLINE_EXCEEDED,
    });
    expect(record.completed).toMatchObject([{ code: "deadline_exceeded" }]);
    other.close();
    await server.close(100);
  });
});
