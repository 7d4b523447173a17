/**
 * A method gives the same response on every protocol, HTTP version and format. The guarantees here are held
 * for each row of the table; what is particular to one server is in rpc-grpc.test.ts and rpc-connect.test.ts.
 */
import type { GenService } from "@bufbuild/protobuf/codegenv2";
import { type Client, Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  IntrospectionService,
  type IntrospectRequestSchema,
  type IntrospectResponseSchema,
} from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { implement, type RpcImplementation } from "../../../src/platform/rpc/service.ts";
import { type RpcServers, startRpcServers } from "../../support/rpc-servers.ts";
import { CounterService, failingCount, secret, silentCount } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

let servers: RpcServers;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers();
  cleanup.defer(() => servers.close());
});

type Protocol = "grpc" | "connect" | "grpc-web";
interface Row {
  readonly protocol: Protocol;
  readonly at: "native" | "HTTP/1.1" | "HTTP/2";
  readonly format: "binary" | "json";
}
const rows: Row[] = [
  { protocol: "grpc", at: "native", format: "binary" },
  { protocol: "grpc", at: "HTTP/2", format: "binary" },
  { protocol: "grpc", at: "HTTP/2", format: "json" },
  ...(["connect", "grpc-web"] as const).flatMap((protocol) =>
    (["HTTP/1.1", "HTTP/2"] as const).flatMap((at) =>
      (["binary", "json"] as const).map((format) => ({ protocol, at, format })),
    ),
  ),
];

function transportOf({ protocol, at, format }: Row): Transport {
  const port = { native: servers.grpcPort, "HTTP/1.1": servers.http1Port, "HTTP/2": servers.http2Port }[at];
  const baseUrl = `http://127.0.0.1:${port}`;
  const useBinaryFormat = format === "binary";
  if (protocol === "grpc") return createGrpcTransport({ baseUrl, useBinaryFormat });
  const create = protocol === "connect" ? createConnectTransport : createGrpcWebTransport;
  return create({ baseUrl, useBinaryFormat, httpVersion: at === "HTTP/1.1" ? "1.1" : "2" });
}

/** As the client would send it, without that the client itself watches the clock. */
const deadline = { headers: { "grpc-timeout": "100m", "connect-timeout-ms": "100" } };

async function collect<T>(stream: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of stream) all.push(one);
  return all;
}

async function errorOf(promise: Promise<unknown>): Promise<ConnectError> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof ConnectError)) throw new Error("the call succeeded");
  return error;
}

describe.each(rows)("$protocol, $at, $format", (row) => {
  let introspection: Client<typeof IntrospectionService>;
  let counter: Client<typeof CounterService>;
  beforeEach(() => {
    const transport = transportOf(row);
    introspection = createClient(IntrospectionService, transport);
    counter = createClient(CounterService, transport);
    servers.completed.length = 0;
    servers.lines.length = 0;
    servers.seen.asked.length = 0;
    servers.seen.aborted.length = 0;
    servers.seen.closedStreams = 0;
  });

  it("answers a unary call, and counts it", async () => {
    const answer = await introspection.introspect({ token: "active" });
    expect(answer).toMatchObject({
      active: true,
      sub: "user-1",
      aud: ["app"],
      userInfo: { userId: "user-1" },
    });
    expect(servers.completed).toEqual([
      {
        service: "auth.v1.IntrospectionService",
        method: "Introspect",
        protocol: row.protocol,
        code: "ok",
        seconds: expect.any(Number),
      },
    ]);
  });

  it("answers a streaming call message by message", async () => {
    const values = (await collect(counter.count({ value: 1_000 }))).map((message) => message.value);
    expect(values).toEqual(Array.from({ length: 1_000 }, (_, i) => `${i + 1}`));
    expect(servers.completed).toMatchObject([{ method: "Count", code: "ok" }]);
    expect(servers.seen.closedStreams).toBe(1);
  });

  it("delivers what came before an error in a stream", async () => {
    const values: string[] = [];
    const reading = async () => {
      for await (const { value } of counter.count({ value: failingCount })) values.push(value);
    };
    expect(await errorOf(reading())).toMatchObject({ code: Code.NotFound, rawMessage: "There is no third." });
    expect(values).toEqual(["1", "2"]);
    expect(servers.completed).toMatchObject([{ code: "not_found" }]);
  });

  const codes = Object.values(Code).filter((code): code is Code => typeof code === "number");
  it.each(codes)("maps an error with code %i", async (code) => {
    const error = await errorOf(introspection.introspect({ token: `fail:${code}` }));
    expect(error).toMatchObject({ code, rawMessage: `Failed with ${Code[code]}.` });
    expect(servers.completed).toMatchObject([{ code: codeToString(code) }]);
  });

  it("states when to retry", async () => {
    const error = await errorOf(introspection.introspect({ token: "busy" }));
    expect(error.code).toBe(Code.ResourceExhausted);
    expect(error.metadata.get("retry-after")).toBe("7");
  });

  it("logs the cause of an error and keeps it to itself", async () => {
    const error = await errorOf(introspection.introspect({ token: "unavailable" }));
    expect(error).toMatchObject({ code: Code.Unavailable, rawMessage: "The database does not answer." });
    expect(JSON.stringify([error, ...error.metadata])).not.toContain(secret);
    expect(servers.lines.join()).toContain(secret);
  });

  it.each(["defect", "defect at once"])("answers a %s with nothing but the request id", async (token) => {
    const error = await errorOf(
      introspection.introspect({ token }, { headers: { "x-request-id": "defect-1" } }),
    );
    expect(error.code).toBe(Code.Internal);
    expect(error.rawMessage).toBe(
      "Something went wrong here. Quote the request id when you report it: defect-1",
    );
    expect(JSON.stringify([error, ...error.metadata])).not.toContain(secret);
    const logged = servers.lines.map((line) => JSON.parse(line)).find((line) => line.level === 50);
    expect(logged).toMatchObject({ requestId: "defect-1", err: { type: "TypeError", message: secret } });
  });

  it("carries any text in an error's message", async () => {
    const error = await errorOf(introspection.introspect({ token: "strange" }));
    expect(error).toMatchObject({ code: Code.NotFound, rawMessage: "Half a pair: \ufffd, 100 %, é\nend" });
  });

  it("hands over metadata", async () => {
    const answer = await counter.describe({ value: "x-api-key" }, { headers: { "x-api-key": "key-1" } });
    expect(answer.value).toBe("key-1");
    expect((await counter.describe({ value: "x-api-key" })).value).toBe("absent");
  });

  it("uses and returns the caller's request id", async () => {
    let answered: string | null = null;
    const onHeader = (headers: Headers) => {
      answered = headers.get("x-request-id");
    };
    const headers = { "x-request-id": "request-42" };
    expect((await counter.describe({ value: "id" }, { headers, onHeader })).value).toBe("request-42");
    expect(answered).toBe("request-42");
    for await (const _ of counter.count(
      { value: 1 },
      { headers: { "x-request-id": "stream-42" }, onHeader },
    ));
    expect(answered).toBe("stream-42");
  });

  it.each(["", "two words", "x".repeat(129)])("makes a request id where the caller's is %j", async (id) => {
    let answered: string | null = null;
    const { value } = await counter.describe(
      { value: "id" },
      {
        headers: { "x-request-id": id },
        onHeader: (headers) => {
          answered = headers.get("x-request-id");
        },
      },
    );
    expect(value).toMatch(/^[0-9a-f-]{36}$/);
    expect(answered).toBe(value);
  });

  it("writes trace and request id in the log", async () => {
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    await introspection.introspect(
      { token: "active" },
      { headers: { traceparent, "x-request-id": "log-1" } },
    );
    expect(servers.lines.map((line) => JSON.parse(line))).toContainEqual(
      expect.objectContaining({ traceparent, requestId: "log-1", operation: "Introspect", rpcCode: "ok" }),
    );
  });

  it.each(["silent", "deaf"])("honours the caller's deadline in a method that is %s", async (token) => {
    const error = await errorOf(introspection.introspect({ token }, deadline));
    expect(error.code).toBe(Code.DeadlineExceeded);
    await waitFor(() => expect(servers.completed).toMatchObject([{ code: "deadline_exceeded" }]));
    if (token === "silent") expect(servers.seen.aborted).toMatchObject([{ code: Code.DeadlineExceeded }]);
  });

  it("honours the caller's deadline in a stream", async () => {
    const error = await errorOf(collect(counter.count({ value: silentCount }, deadline)));
    expect(error.code).toBe(Code.DeadlineExceeded);
    await waitFor(() => expect(servers.completed).toMatchObject([{ code: "deadline_exceeded" }]));
    await waitFor(() => expect(servers.seen.closedStreams).toBe(1));
  });

  it.each(["silent", "deaf"])("notices that the caller cancels in a method that is %s", async (token) => {
    const controller = new AbortController();
    const answer = errorOf(introspection.introspect({ token }, { signal: controller.signal }));
    await waitFor(() => expect(servers.seen.asked).toEqual([token]));
    controller.abort();
    expect((await answer).code).toBe(Code.Canceled);
    await waitFor(() => expect(servers.completed).toMatchObject([{ code: "canceled" }]));
    if (token === "silent") expect(servers.seen.aborted).toMatchObject([{ code: Code.Canceled }]);
  });

  it("stops a stream whose reader has gone", async () => {
    const controller = new AbortController();
    const stream = counter
      .count({ value: silentCount }, { signal: controller.signal })
      [Symbol.asyncIterator]();
    expect(await stream.next()).toMatchObject({ value: { value: "1" } });
    controller.abort();
    await waitFor(() => expect(servers.completed).toMatchObject([{ code: "canceled" }]));
    await waitFor(() => expect(servers.seen.closedStreams).toBe(1));
  });
});

describe("implement", () => {
  it("does not take a service without all of its methods", () => {
    // @ts-expect-error a method is missing
    expect(() => implement(IntrospectionService, {})).toThrow(TypeError);
  });

  it("does not take a method that takes a stream", () => {
    type Uploads = GenService<{
      upload: {
        methodKind: "client_streaming";
        input: typeof IntrospectRequestSchema;
        output: typeof IntrospectResponseSchema;
      };
    }>;
    const upload = async () => ({ active: true });
    // @ts-expect-error there is no type of implementation for it
    const refused: RpcImplementation<Uploads> = { upload };
    expect(refused).toBeDefined();
  });
});
