/** openapi-generator (https://openapi-generator.tech), which checks of several languages run. */
import { existsSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { ToolchainProgram, World } from "./language.ts";
import { runMaven, shortLived } from "./maven.ts";

export const openapiGeneratorVersion = "7.25.0";

/** The generator is a Java program that Maven fetches. */
export const openapiGeneratorToolchain: readonly ToolchainProgram[] = [
  { name: "java", install: "https://adoptium.net/installation" },
  { name: "mvn", install: "https://maven.apache.org/install.html" },
];

export interface Generation {
  /** As `openapi-generator list` names it: `java`, `kotlin`, `go`, `python`. */
  readonly generator: string;
  readonly document: "auth" | "push";
  /** A folder, relative to `world.build`. It is emptied first. */
  readonly output: string;
  /** `--additional-properties` of the generator. */
  readonly properties?: Readonly<Record<string, string>>;
  /** Further arguments, such as `--global-property=models,apis,supportingFiles`. */
  readonly options?: readonly string[];
}

/**
 * Generates a client from a document as the server serves it, after the generator's own validation of the document.
 * @returns the absolute path of the output
 * @throws with the generator's complaint
 */
export async function generateWithOpenapiGenerator(
  world: World,
  { generator, document, output, properties = {}, options = [] }: Generation,
): Promise<string> {
  const jar = await fetchGenerator(world);
  const folder = join(world.build, output);
  rmSync(folder, { recursive: true, force: true });
  const assignments = Object.entries(properties).map(([name, value]) => `${name}=${value}`);
  await world.run([
    "java",
    ...shortLived,
    "-jar",
    jar,
    "generate",
    `--generator-name=${generator}`,
    `--input-spec=${join(world.documents, `${document}.yaml`)}`,
    `--output=${folder}`,
    ...(assignments.length > 0 ? [`--additional-properties=${assignments.join(",")}`] : []),
    ...options,
  ]);
  return folder;
}

let generator: Promise<string> | undefined;

/** One copy for all languages, beside their build folders. @returns its path */
export function fetchGenerator(world: World): Promise<string> {
  generator ??= fetchInto(world, join(world.build, "..", "openapi-generator"));
  // What has failed may be tried again.
  generator.catch(() => {
    generator = undefined;
  });
  return generator;
}

async function fetchInto(world: World, folder: string): Promise<string> {
  const jar = join(folder, `openapi-generator-cli-${openapiGeneratorVersion}.jar`);
  if (!existsSync(jar)) {
    await runMaven(world, [
      "org.apache.maven.plugins:maven-dependency-plugin:3.9.0:copy",
      `-Dartifact=org.openapitools:openapi-generator-cli:${openapiGeneratorVersion}`,
      `-DoutputDirectory=${folder}`,
    ]);
  }
  return jar;
}
