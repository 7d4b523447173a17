/** Clients that keep as many streams of one connection open as they may, while responses come before requests end. */
import { expect, it, onTestFinished } from "vitest";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { fillConnection } from "../../support/full-connection.ts";
import { startServer } from "../../support/http-connections.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";

const path = "/auth.v1.IntrospectionService/Introspect";

it.each([
  ["of an unknown method", { path: "/auth.v1.IntrospectionService/Other", rounds: 6 }],
  ["of another protocol", { path, contentType: "application/json", rounds: 6 }],
])("loses no response %s over native gRPC", async (_name, target) => {
  const grpc = createGrpcServer(recorder());
  grpc.serve(testServices().services);
  onTestFinished(() => grpc.close(0));
  const { requests, ...seen } = await fillConnection(await grpc.listen("127.0.0.1", 0), target);
  expect(requests).toBe(6_000);
  expect(seen).toEqual({ responses: requests, resets: [], goaways: [] });
});

it.each([
  ["without a look at its body", "/"],
  ["before it is routed", "/a/../b"],
])("loses no response that is made %s over HTTP", async (_name, target) => {
  const { port } = await startServer({ tls: true, fetch: () => new Response("No.", { status: 401 }) });
  const { requests, ...seen } = await fillConnection(port, { path: target, isSecure: true, rounds: 6 });
  expect(requests).toBe(1_536);
  expect(seen).toEqual({ responses: requests, resets: [], goaways: [] });
});
