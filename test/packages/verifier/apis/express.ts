import type { Verifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/express";
import express from "express";

export async function start(verifier: Verifier): Promise<string> {
  const app = express();
  app.use(bearer(verifier, { scopes: ["orders"] }));
  app.get("/", (request, response) => {
    response.send(tokenOf(request).sub);
  });
  return new Promise((resolve) => {
    const server = app.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve(typeof address === "object" ? `http://127.0.0.1:${address?.port}` : "");
    });
  });
}
