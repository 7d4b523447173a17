/**
 * `node measured.ts <framework> <bare|keys|strict> <URL of auth> <issuer> <client> <secret> <file>`: one API, for a
 * benchmark. Writes its address to the file.
 */
import { writeFileSync } from "node:fs";
import { createVerifier, type Verifier } from "@gatepost/verifier";
import { bare } from "./bare.ts";

const [framework = "", mode, auth = "", issuer = "", clientId = "", clientSecret = "", file = ""] =
  process.argv.slice(2);

function verifierOf(): Verifier {
  const common = { issuer, audience: "storefront" };
  if (mode === "keys") return createVerifier({ ...common, mode, jwksUrl: `${auth}/v1/jwks` });
  const introspection = { clientId, clientSecret, url: `${auth}/oauth2/v1/introspect` };
  return createVerifier({ ...common, mode: "strict", introspection });
}

async function start(): Promise<string | undefined> {
  if (mode === "bare") return bare[framework]?.();
  const program: typeof import("./express.ts") = await import(`./${framework}.ts`);
  return program.start(verifierOf());
}
writeFileSync(file, (await start()) ?? "");
