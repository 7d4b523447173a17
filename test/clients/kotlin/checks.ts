/** Kotlin: the client of openapi-generator. */
import { maven } from "../java/maven.ts";
import type { Language } from "../language.ts";
import {
  generateWithOpenapiGenerator,
  openapiGeneratorToolchain,
  openapiGeneratorVersion,
} from "../openapi-generator.ts";

export const language: Language = {
  name: "kotlin",
  toolchain: openapiGeneratorToolchain,
  checks: [
    {
      tool: `openapi-generator ${openapiGeneratorVersion}, kotlin`,
      holds: "generates, compiles (the walk with -Werror), walks through both services",
      short: false,
      async run(world) {
        for (const document of ["auth", "push"] as const) {
          const properties = { packageName: `gatepost.${document}` };
          await generateWithOpenapiGenerator(world, {
            generator: "kotlin",
            document,
            output: document,
            properties,
          });
        }
        await maven(world, { project: ".", goal: "test" });
      },
    },
  ],
};
