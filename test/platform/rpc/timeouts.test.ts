/** Timeouts that callers set, longer than a timer holds: no protocol takes them for short ones, nor refuses them. */
import { create, toBinary } from "@bufbuild/protobuf";
import { beforeAll, describe, expect, it } from "vitest";
import { IntrospectRequestSchema } from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { envelope, rawRequest } from "../../support/grpc-client.ts";
import { type RpcServers, startRpcServers } from "../../support/rpc-servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const path = "/auth.v1.IntrospectionService/Introspect";
/** Asks for a response that is not immediate: a timer that has overflowed ends the call before. */
const message = envelope(
  toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token: "slow" })),
);
const longTimeouts = ["2H", "597H", "600H", "1000H", "99999999H", "99999999M", "99999999S"];

let servers: RpcServers;
const cleanup = suiteCleanup();
beforeAll(async () => {
  servers = await startRpcServers();
  cleanup.defer(() => servers.close());
});

describe("a long timeout is none that is over, or wrong", () => {
  it.each(longTimeouts)("over gRPC, on either port: %s", async (timeout) => {
    const headers = { ":path": path, "grpc-timeout": timeout };
    for (const port of [servers.grpcPort, servers.http2Port]) {
      const { trailers } = await rawRequest(port, headers, message);
      expect(trailers).toMatchObject({ "grpc-status": "0" });
    }
  });

  it.each(longTimeouts)("over gRPC-Web: %s", async (timeout) => {
    const headers = { "content-type": "application/grpc-web+proto", "grpc-timeout": timeout };
    const response = await fetch(`http://127.0.0.1:${servers.http1Port}${path}`, {
      method: "POST",
      headers,
      body: new Uint8Array(message),
    });
    expect(await response.text()).toContain("grpc-status: 0");
  });

  it.each(["3600001", "2147483647", "2147483648", "9999999999"])("over Connect: %s ms", async (timeout) => {
    const headers = { "content-type": "application/json", "connect-timeout-ms": timeout };
    const body = JSON.stringify({ token: "slow" });
    const response = await fetch(`http://127.0.0.1:${servers.http1Port}${path}`, {
      method: "POST",
      headers,
      body,
    });
    expect(response.status).toBe(200);
  });
});
