/** Clients of Connect and gRPC-Web at the port of gRPC: they learn which port is theirs, each in its own protocol. */
import { Code, createClient } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { beforeAll, expect, it } from "vitest";
import { rawRequest } from "../../support/grpc-client.ts";
import { type RpcServers, startRpcServers } from "../../support/rpc-servers.ts";
import { CounterService } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

let servers: RpcServers;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers();
  cleanup.defer(() => servers.close());
});

const told = { code: Code.Unimplemented, rawMessage: expect.stringContaining("SERVER_PORT") };

it.each([
  ["Connect", (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "2" })],
  [
    "Connect in JSON",
    (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "2", useBinaryFormat: false }),
  ],
  ["gRPC-Web", (baseUrl: string) => createGrpcWebTransport({ baseUrl, httpVersion: "2" })],
])("%s is told the right port, calls and streams alike", async (_, transport) => {
  const client = createClient(CounterService, transport(`http://127.0.0.1:${servers.grpcPort}`));
  await expect(client.describe({ value: "x" })).rejects.toMatchObject(told);
  const stream = client.count({ value: 2 })[Symbol.asyncIterator]();
  await expect(stream.next()).rejects.toMatchObject(told);
  expect(servers.completed).toEqual([]);
});

it.each(["text/plain", "application/grpcx", ""])("content type %j is a 415 that says so", async (type) => {
  const { headers, body } = await rawRequest(servers.grpcPort, {
    ":path": "/gatepost.test.v1.CounterService/Describe",
    "content-type": type,
    "x-request-id": "of-the-caller",
  });
  expect(headers).toMatchObject({ ":status": 415, "x-request-id": "of-the-caller" });
  expect(JSON.parse(body.toString()).message).toContain("SERVER_PORT");
});

it("gRPC is served with any message format that it names", async () => {
  const client = createClient(
    CounterService,
    createGrpcTransport({ baseUrl: `http://127.0.0.1:${servers.grpcPort}` }),
  );
  expect((await client.describe({ value: "x" })).value).not.toBe("");
});
