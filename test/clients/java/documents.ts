/** Java libraries that read the documents, of which request validators, mock servers and generators are made. */
import type { Check } from "../language.ts";
import { maven } from "./maven.ts";

export const documentsCheck: Check = {
  tool: "swagger-parser 2.1.48, swagger-request-validator 2.46.1",
  holds: "read both documents as YAML and JSON without a message; judge requests and responses by them",
  short: false,
  async run(world) {
    await maven(world, { project: "documents", goal: "test", environment: { DOCUMENTS: world.documents } });
  },
};
