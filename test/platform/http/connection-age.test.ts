/** Connections of HTTP/2 end at an age, so that their clients are dealt to another worker; their requests do not. */
import { once } from "node:events";
import { constants } from "node:http2";
import { expect, it, onTestFinished } from "vitest";
import { createHttpServer } from "../../../src/platform/http/server.ts";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { captureLog } from "../../support/captured-log.ts";
import { askHttp2, session } from "../../support/http-connections.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";

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
