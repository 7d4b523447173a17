/** What the gRPC port speaks: HTTP/2 alone, and over it each protocol of RPC. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { connect as connectTls } from "node:tls";
import { createClient } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { envelope, rawRequest } from "../../support/grpc-client.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { type RpcServers, recorder, startRpcServers } from "../../support/rpc-servers.ts";
import { CounterService, testServices } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

let servers: RpcServers;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers();
  cleanup.defer(() => servers.close());
});

const describePath = "/gatepost.test.v1.CounterService/Describe";

it.each([
  ["gRPC", createGrpcTransport, true],
  ["gRPC in JSON", createGrpcTransport, false],
  ["gRPC-Web", createGrpcWebTransport, true],
  ["Connect", createConnectTransport, true],
  ["Connect in JSON", createConnectTransport, false],
])("serves calls and streams of %s", async (_, createTransport, useBinaryFormat) => {
  const baseUrl = `http://127.0.0.1:${servers.grpcPort}`;
  const client = createClient(
    CounterService,
    createTransport({ baseUrl, httpVersion: "2", useBinaryFormat }),
  );
  expect((await client.describe({ value: "id" })).value).not.toBe("");
  const counted = await Array.fromAsync(client.count({ value: 2 }), ({ value }) => value);
  expect(counted).toEqual(["1", "2"]);
});

it.each(["text/plain", "application/grpcx", ""])("content type %j is a 415", async (type) => {
  const { headers } = await rawRequest(servers.grpcPort, {
    ":path": describePath,
    "content-type": type,
    "x-request-id": "of-the-caller",
  });
  expect(headers).toMatchObject({ ":status": 415, "x-request-id": "of-the-caller" });
});

it("an address that is taken is an error with code and port", async () => {
  const other = createGrpcServer(recorder());
  await expect(other.listen("127.0.0.1", servers.grpcPort)).rejects.toMatchObject({
    code: "EADDRINUSE",
    port: servers.grpcPort,
  });
});

describe("a client of HTTP/1.1", () => {
  async function received(socket: Socket): Promise<string> {
    socket.on("error", () => undefined).write("POST /a HTTP/1.1\r\nHost: a\r\n\r\n");
    return text(socket);
  }

  it("is told that the port speaks HTTP/2, and is hung up on", async () => {
    const response = await received(connect(servers.grpcPort, "127.0.0.1"));
    expect(response).toMatch(/^HTTP\/1\.1 505 .*Connection: close\r\n.*HTTP\/2 only.*SERVER_PORT/s);
  });

  it("is told so over TLS, if it agrees on no protocol", async () => {
    const grpc = createGrpcServer({ ...recorder(), tls: localhostCertificate });
    grpc.serve(testServices().services);
    const port = await grpc.listen("127.0.0.1", 0);
    onTestFinished(() => grpc.close(100));
    expect(await received(connectTls({ port, rejectUnauthorized: false }))).toMatch(/^HTTP\/1\.1 505 /);
  });
});

it("cipher suites are those of the server", async () => {
  const tls = { ...localhostCertificate, ciphers: "ECDHE-ECDSA-AES256-GCM-SHA384:TLS_AES_256_GCM_SHA384" };
  const grpc = createGrpcServer({ ...recorder(), tls });
  grpc.serve(testServices().services);
  const port = await grpc.listen("127.0.0.1", 0);
  onTestFinished(() => grpc.close(100));
  const offering = (ciphers: string) =>
    connectTls({ port, ciphers, ALPNProtocols: ["h2"], rejectUnauthorized: false, maxVersion: "TLSv1.2" });
  const refused = offering("ECDHE-ECDSA-AES128-GCM-SHA256");
  await expect(once(refused, "secureConnect")).rejects.toThrow(/handshake failure/);
  const agreed = offering("ECDHE-ECDSA-AES256-GCM-SHA384");
  await once(agreed, "secureConnect");
  expect(agreed.alpnProtocol).toBe("h2");
  agreed.destroy();
});

it("a connection takes a thousand calls at once, with large headers", async () => {
  const calls = 1_000;
  const session = connectHttp2(`http://127.0.0.1:${servers.grpcPort}`, { maxSessionMemory: 1_000 });
  onTestFinished(() => session.destroy());
  await once(session, "remoteSettings");
  const message = envelope(Buffer.alloc(0));
  const statuses = Array.from({ length: calls }, async (_, n) => {
    const stream = session.request({
      ":method": "POST",
      ":path": describePath,
      "content-type": "application/grpc",
      te: "trailers",
      "x-large": `${n}`.padEnd(10_000, "x"),
    });
    // So that all are open at once.
    stream.write(message.subarray(0, 1));
    await new Promise<void>((resolve) => session.ping(() => resolve()));
    stream.end(message.subarray(1));
    const [trailers] = await once(stream.resume(), "trailers");
    return trailers["grpc-status"];
  });
  expect(new Set(await Promise.all(statuses))).toEqual(new Set(["0"]));
});
