/** Connections of HTTP/2 end at an age, so that their clients are dealt to another worker; their requests do not. */
import { once } from "node:events";
import { constants } from "node:http2";
import { join } from "node:path";
import { ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { expect, it, onTestFinished } from "vitest";
import { IntrospectionService } from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { captureLog } from "../../support/captured-log.ts";
import { GrpcClient, loadMethod } from "../../support/grpc-client.ts";
import { askHttp2, session } from "../../support/http-connections.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";

const introspect = loadMethod(
  join(import.meta.dirname, "../../../proto/auth/v1/introspection.proto"),
  "auth.v1.IntrospectionService",
  "Introspect",
);

it("a connection of HTTP/2 gets GOAWAY at its age, and the response that it waits for", async () => {
  const { promise: mayRespond, resolve: respond } = Promise.withResolvers<void>();
  const server = createHttpServer({
    tls: localhostCertificate,
    logger: captureLog().logger,
    maxConnectionAgeMs: 300,
  });
  server.serve({
    fetch: async () => {
      await mayRespond;
      return new Response("late");
    },
  });
  onTestFinished(() => server.close(0));
  const client = session(await server.listen("127.0.0.1", 0));
  const closed = once(client, "close");
  const asked = askHttp2(client, "/");
  const [code] = await once(client, "goaway");
  expect(code).toBe(constants.NGHTTP2_NO_ERROR);
  respond();
  expect(await asked).toMatchObject({ status: 200, body: "late" });
  await closed;
});

it("so does one of gRPC", async () => {
  const grpc = createGrpcServer({ ...recorder(), tls: localhostCertificate, maxConnectionAgeMs: 300 });
  grpc.serve(testServices().services);
  onTestFinished(() => grpc.close(0));
  const client = session(await grpc.listen("127.0.0.1", 0));
  const [code] = await once(client, "goaway");
  expect(code).toBe(constants.NGHTTP2_NO_ERROR);
});

it("calls that are on their way then are made again by grpc-js, and reported as refused by connect-node", async () => {
  const grpc = createGrpcServer({ ...recorder(), maxConnectionAgeMs: 400 });
  grpc.serve(testServices().services);
  onTestFinished(() => grpc.close(0));
  const port = await grpc.listen("127.0.0.1", 0);
  const foreign = new GrpcClient(port);
  onTestFinished(() => foreign.close());
  const connect = createClient(
    IntrospectionService,
    createGrpcTransport({ baseUrl: `http://127.0.0.1:${port}` }),
  );
  const failures = async (call: () => Promise<unknown>): Promise<unknown[]> => {
    const found: unknown[] = [];
    const caller = async () => {
      for (let made = 0; made < 400; made += 1) await call().catch((error) => found.push(error));
    };
    await Promise.all(Array.from({ length: 8 }, caller));
    return found;
  };
  expect(await failures(() => foreign.unary(introspect, { token: "active" }))).toEqual([]);
  for (const failure of await failures(() => connect.introspect({ token: "active" })))
    expect(ConnectError.from(failure).message).toMatch(/NGHTTP2_REFUSED_STREAM$/);
});
