/** Maven, which builds what is in this folder below the folder of build results. */
import { join } from "node:path";
import type { World } from "../language.ts";
import { runMaven } from "../maven.ts";

export interface MavenRun {
  /** The project: a folder of `world.sources` with a pom.xml, which takes its `directory` from `buildDirectory`. */
  readonly project: string;
  readonly goal: "package" | "test";
  /** Below `world.build`; the project's name unless another is given. */
  readonly output?: string;
  readonly properties?: Readonly<Record<string, string>>;
  /** For the programs that are run, beside what every client program is given. */
  readonly environment?: Readonly<Record<string, string>>;
}

/** @returns the absolute path of the folder of build results, and what the programs wrote that were run */
export async function maven(
  world: World,
  { project, goal, output: folder = project, properties = {}, environment = {} }: MavenRun,
): Promise<{ build: string; output: string }> {
  const build = join(world.build, folder);
  const arguments_ = [
    `--file=${join(world.sources, project, "pom.xml")}`,
    `-DbuildDirectory=${build}`,
    ...Object.entries(properties).map(([name, value]) => `-D${name}=${value}`),
    goal,
  ];
  return { build, output: await runMaven(world, arguments_, { env: environment }) };
}
