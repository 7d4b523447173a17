import { defineConfig } from "orval";

const documents = process.env["DOCUMENTS"] ?? "";

/** The client calls the server that the document names: the one that the document was fetched from. */
const generate = (name: string) => ({
  input: `${documents}/${name}.yaml`,
  output: {
    target: `generated/${name}.ts`,
    client: "fetch" as const,
    baseUrl: { getBaseUrlFromSpecification: true as const },
  },
});

export default defineConfig({ auth: generate("auth"), push: generate("push") });
