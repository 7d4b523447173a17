/** The client of openapi-generator's generator `java`, whose library `native` is the JDK's own HTTP client. */
import type { Check } from "../language.ts";
import { generateWithOpenapiGenerator, openapiGeneratorVersion } from "../openapi-generator.ts";
import { maven } from "./maven.ts";

export const nativeCheck: Check = {
  tool: `openapi-generator ${openapiGeneratorVersion}, java (native)`,
  holds: "generates, compiles (the walk with -Xlint:all -Werror), walks through both services",
  short: true,
  async run(world) {
    for (const document of ["auth", "push"] as const) {
      const name = `gatepost.${document}`;
      await generateWithOpenapiGenerator(world, {
        generator: "java",
        document,
        output: `native/${document}`,
        properties: {
          library: "native",
          useJakartaEe: "true",
          // Requests are objects with names: a parameter that is added later breaks no caller.
          useSingleRequestParameter: "true",
          invokerPackage: name,
          apiPackage: name,
          modelPackage: name,
        },
      });
    }
    await maven(world, { project: "native", goal: "test" });
  },
};
