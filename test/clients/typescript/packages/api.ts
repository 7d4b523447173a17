/** An API that tells its callers who they are. */
import { createVerifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/express";
import express from "express";

const { GATEPOST_ISSUER = "", GATEPOST_API_SECRET = "", PORT = "3000" } = process.env;

const verifier = createVerifier({
  issuer: GATEPOST_ISSUER,
  audience: "storefront",
  mode: "strict",
  introspection: { clientId: "api", clientSecret: GATEPOST_API_SECRET },
  onUnavailable: (error) => process.stderr.write(`${error.message}\n`),
});

const app = express();
app.use(bearer(verifier, { scopes: ["orders"] }));
app.get("/", (request, response) => {
  response.send(tokenOf(request).sub);
});
app.listen(PORT, () => process.stdout.write(`http://127.0.0.1:${PORT}\n`));
