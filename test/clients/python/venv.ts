/** Runs programs of the virtual environment, which see the walks and what has been generated for them. */
import { delimiter, join } from "node:path";
import type { RunOptions, World } from "../language.ts";

/** Runs a program that a package brings, such as `mypy`. */
export function tool(world: World, ...command: [string, ...string[]]): Promise<string> {
  return runIn(world, command);
}

export function python(world: World, ...args: string[]): Promise<string> {
  return runIn(world, ["python", ...args]);
}

export function runIn(
  world: World,
  [program, ...args]: [string, ...string[]],
  { env, ...options }: RunOptions = {},
): Promise<string> {
  const bin = join(world.build, "venv", "bin");
  const path = [
    world.sources,
    join(world.sources, "schemathesis"),
    world.build,
    join(world.build, "proto"),
  ].join(delimiter);
  return world.run([join(bin, program), ...args], {
    ...options,
    env: {
      PATH: [bin, process.env["PATH"]].join(delimiter),
      PYTHONPATH: path,
      MYPYPATH: path,
      PYTHONDONTWRITEBYTECODE: "1",
      ...env,
    },
  });
}
