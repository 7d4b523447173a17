/** `node main.ts <issuer>`: an API in each framework, for each verifier. Writes their addresses as one line of JSON. */
import { createVerifier } from "@gatepost/verifier";

const [, , issuer = ""] = process.argv;
const audience = "orders-api";
const introspection = { clientId: "orders-api", clientSecret: "orders-api-dev-secret" };
const verifiers = {
  strict: createVerifier({ issuer, audience, mode: "strict", introspection }),
  keys: createVerifier({ issuer, audience, mode: "keys" }),
  /** Not called before auth is away. */
  cold: createVerifier({ issuer, audience, mode: "keys" }),
};

const addresses: Record<string, Record<string, string>> = {};
for (const [name, verifier] of Object.entries(verifiers)) {
  const started: Record<string, string> = {};
  for (const framework of ["express", "fastify", "hono", "node-http", "connect", "grpc-js", "routes"]) {
    const { start }: typeof import("./express.ts") = await import(`./${framework}.ts`);
    started[framework] = await start(verifier);
  }
  addresses[name] = started;
}
process.stdout.write(`${JSON.stringify(addresses)}\n`);
