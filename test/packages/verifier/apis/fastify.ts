import type { Verifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/fastify";
import { fastify } from "fastify";

export async function start(verifier: Verifier): Promise<string> {
  const app = fastify();
  app.addHook("onRequest", bearer(verifier, { scopes: ["orders"] }));
  app.get("/", async (request) => tokenOf(request).sub);
  return app.listen({ port: 0, host: "127.0.0.1" });
}
