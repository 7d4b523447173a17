/** Express, for pages of another origin, with requirements for each route. */
import type { Verifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/express";
import cors from "cors";
import express from "express";
import { listen } from "./node-http.ts";

export function start(verifier: Verifier): Promise<string> {
  const app = express();
  app.use(cors({ origin: "https://shop.example.com", exposedHeaders: ["WWW-Authenticate", "Retry-After"] }));
  app.get("/orders", bearer(verifier, { scopes: ["orders"] }), (request, response) => {
    response.send(`orders of ${tokenOf(request).sub}`);
  });
  app.get("/profile", bearer(verifier, { scopes: ["profile"] }), (request, response) => {
    response.send(`profile of ${tokenOf(request).sub}`);
  });
  app.get("/reports", bearer(verifier, { scopes: ["orders"], clients: true }), (request, response) => {
    response.send(`reports for ${tokenOf(request).clientId}`);
  });
  return listen(app);
}
