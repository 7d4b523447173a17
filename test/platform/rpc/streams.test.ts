/** Streams in both directions, over HTTP/2. */
import { once } from "node:events";
import { connect, createServer } from "node:http2";
import { create, toBinary } from "@bufbuild/protobuf";
import { fileDesc, type GenService, serviceDesc } from "@bufbuild/protobuf/codegenv2";
import { base64Encode } from "@bufbuild/protobuf/wire";
import {
  FileDescriptorProtoSchema,
  file_google_protobuf_wrappers,
  type StringValueSchema,
} from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { createRpcHandler } from "../../../src/platform/rpc/handler.ts";
import { implement } from "../../../src/platform/rpc/service.ts";
import { envelope } from "../../support/grpc-client.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { waitFor } from "../../support/wait-for.ts";

const file = create(FileDescriptorProtoSchema, {
  name: "gatepost/test/v1/echo.proto",
  package: "gatepost.test.v1",
  syntax: "proto3",
  dependency: ["google/protobuf/wrappers.proto"],
  service: [
    {
      name: "EchoService",
      method: [
        {
          name: "Echo",
          inputType: ".google.protobuf.StringValue",
          outputType: ".google.protobuf.StringValue",
          clientStreaming: true,
          serverStreaming: true,
        },
      ],
    },
  ],
});
const EchoService: GenService<{
  echo: {
    methodKind: "bidi_streaming";
    input: typeof StringValueSchema;
    output: typeof StringValueSchema;
  };
}> = serviceDesc(
  fileDesc(base64Encode(toBinary(FileDescriptorProtoSchema, file)), [file_google_protobuf_wrappers]),
  0,
);

const echo = implement(EchoService, {
  async *echo(requests) {
    for await (const { value } of requests) yield { value: `heard ${value}` };
  },
});

let baseUrl: string;
let record: ReturnType<typeof recorder>;
let handler: ReturnType<typeof createRpcHandler>;
beforeEach(async () => {
  record = recorder();
  handler = createRpcHandler({ ...record, services: [echo] });
  const server = createServer().on(
    "stream",
    (stream, headers) => void handler.routes[0]?.handleStream(stream, headers),
  );
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = server.address();
  baseUrl = `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
});

describe.each([
  ["grpc", () => createGrpcTransport({ baseUrl })],
  ["connect", () => createConnectTransport({ baseUrl, httpVersion: "2" })],
] as const)("%s", (protocol, transport) => {
  /** A conversation whose first word was heard. */
  async function conversation() {
    const { promise: more, resolve: finish } = Promise.withResolvers<string>();
    async function* words() {
      yield { value: "one" };
      yield { value: await more };
    }
    const client = createClient(EchoService, transport());
    const responses = client.echo(words())[Symbol.asyncIterator]();
    expect((await responses.next()).value).toMatchObject({ value: "heard one" });
    return { responses, finish };
  }

  it("responds to each request before the next", async () => {
    const { responses, finish } = await conversation();
    finish("two");
    expect((await responses.next()).value).toMatchObject({ value: "heard two" });
    expect(await responses.next()).toMatchObject({ done: true });
    expect(record.completed).toMatchObject([{ method: "Echo", protocol, code: "ok" }]);
  });

  it("ends when the server drains, though the caller has more to say", async () => {
    const { responses, finish } = await conversation();
    handler.drain();
    await expect(responses.next()).rejects.toMatchObject({ code: Code.Unavailable });
    finish("late");
    expect(record.completed).toMatchObject([{ code: "unavailable" }]);
  });

  it("ends with the status of a request that is too long, which is no defect", async () => {
    const { responses, finish } = await conversation();
    finish("x".repeat(70_000));
    await expect(responses.next()).rejects.toMatchObject({ code: Code.ResourceExhausted });
    expect(record.completed).toMatchObject([{ code: "resource_exhausted" }]);
    expect(record.lines.join()).not.toContain("A method failed");
  });
});

it("ends when its caller goes, though the method waits for more", async () => {
  const session = connect(baseUrl);
  const path = handler.routes[0]?.path;
  const fields = { ":method": "POST", ":path": path, "content-type": "application/grpc" };
  const stream = session.request(fields);
  stream.on("error", () => undefined);
  stream.write(envelope(Buffer.from([0x0a, 1, 0x78])));
  await once(stream, "data");
  session.destroy();
  await waitFor(() => expect(record.completed).toMatchObject([{ code: "canceled" }]));
  expect(record.lines.join()).not.toContain("A method failed");
});
