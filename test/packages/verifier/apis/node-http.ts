import { createServer, type RequestListener } from "node:http";
import type { Verifier } from "@gatepost/verifier";
import { bearer } from "@gatepost/verifier/node-http";

/** @returns its address, when it listens */
export function listen(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve(typeof address === "object" ? `http://127.0.0.1:${address?.port}` : "");
    });
  });
}

export function start(verifier: Verifier): Promise<string> {
  const scopes = ["orders"];
  const listener = bearer(verifier, (_request, response, { sub }) => response.end(sub), { scopes });
  return listen(listener);
}
