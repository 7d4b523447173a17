import type { Verifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/hono";
import { serve } from "@hono/node-server";
import { Hono } from "hono";

export async function start(verifier: Verifier): Promise<string> {
  const app = new Hono();
  app.use(bearer(verifier, { scopes: ["orders"] }));
  app.get("/", (context) => context.text(tokenOf(context).sub));
  return new Promise((resolve) => {
    serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) =>
      resolve(`http://127.0.0.1:${port}`),
    );
  });
}
