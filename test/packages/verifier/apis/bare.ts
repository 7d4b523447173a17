/** The same APIs without a verifier, to measure beside. */
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { type handleUnaryCall, Server } from "@grpc/grpc-js";
import { serve } from "@hono/node-server";
import express from "express";
import { fastify } from "fastify";
import { Hono } from "hono";
import { listenGrpc, whoAmIMethod } from "./grpc-js.ts";
import { Health, HealthCheckResponse_ServingStatus } from "./health_pb.ts";
import { listen } from "./node-http.ts";

const user = "user-1";
const whoAmI: handleUnaryCall<Buffer, Buffer> = (_call, respond) => respond(null, Buffer.from(user));

export const bare: Readonly<Record<string, () => Promise<string>>> = {
  express() {
    const app = express();
    app.get("/", (_request, response) => {
      response.send(user);
    });
    return listen(app);
  },
  fastify() {
    const app = fastify();
    app.get("/", async () => user);
    return app.listen({ port: 0, host: "127.0.0.1" });
  },
  hono() {
    const app = new Hono();
    app.get("/", (context) => context.text(user));
    return new Promise((resolve) => {
      serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) =>
        resolve(`http://127.0.0.1:${port}`),
      );
    });
  },
  "node-http": () => listen((_request, response) => response.end(user)),
  connect: () =>
    listen(
      connectNodeAdapter({
        routes: (router) =>
          router.service(Health, {
            check(_request, context) {
              context.responseHeader.set("x-user", user);
              return { status: HealthCheckResponse_ServingStatus.SERVING };
            },
          }),
      }),
    ),
  "grpc-js"() {
    const server = new Server();
    server.addService(whoAmIMethod, { whoAmI });
    return listenGrpc(server);
  },
};
