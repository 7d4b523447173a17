/**
 * TypeScript: each folder is a program that walks through both services with the client of one generator. They are
 * copied to the build folder, a project with its own node_modules, as a user of the generators has one.
 */
import { cpSync, existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Check, Language, World } from "../language.ts";

const HOLDS = "generates, compiles in the strictest mode, walks through both services";

const { dependencies: versions }: { dependencies: Record<string, string> } = JSON.parse(
  readFileSync(join(import.meta.dirname, "package.json"), "utf8"),
);

/** A program of the project's own node_modules. */
const program = (world: World, name: string) => join(world.build, "node_modules", ".bin", name);

/** Installs what the lock file names, unless it is installed already. */
async function prepare(world: World): Promise<void> {
  const installed = join(world.build, "node_modules", "package-lock.json");
  const locked = readFileSync(join(world.sources, "package-lock.json"), "utf8");
  cpSync(world.sources, world.build, { recursive: true });
  if (existsSync(installed) && readFileSync(installed, "utf8") === locked) return;
  await world.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
  cpSync(join(world.sources, "package-lock.json"), installed);
}

/**
 * @param packages the packages that make up the tool
 * @param folder has `main.ts`, the walk
 */
function check(
  folder: string,
  packages: readonly string[],
  short: boolean,
  generate: (world: World, cwd: string) => Promise<void>,
): Check {
  return {
    tool: packages.map((name) => `${name} ${versions[name]}`).join(", "),
    holds: HOLDS,
    short,
    async run(world) {
      const cwd = join(world.build, folder);
      rmSync(join(cwd, "generated"), { recursive: true, force: true });
      await generate(world, cwd);
      await world.run([program(world, "tsc"), "--project", "."], { cwd });
      await world.run([program(world, "tsx"), "main.ts"], { cwd });
    },
  };
}

async function generateOpenapiTypes(world: World, cwd: string): Promise<void> {
  for (const name of ["auth", "push"]) {
    const input = join(world.documents, `${name}.yaml`);
    await world.run([program(world, "openapi-typescript"), input, "--output", `generated/${name}.ts`], {
      cwd,
    });
  }
}

export const language: Language = {
  name: "typescript",
  toolchain: [{ name: "npm", install: "https://nodejs.org/en/download" }],
  prepare,
  checks: [
    check("openapi-fetch", ["openapi-typescript", "openapi-fetch"], false, generateOpenapiTypes),
    check("hey-api", ["@hey-api/openapi-ts"], true, async (world, cwd) => {
      for (const name of ["auth", "push"]) {
        const input = join(world.documents, `${name}.yaml`);
        await world.run([program(world, "openapi-ts"), "--input", input, "--output", `generated/${name}`], {
          cwd,
        });
      }
    }),
    check("orval", ["orval"], false, async (world, cwd) => {
      const env = { DOCUMENTS: world.documents };
      await world.run([program(world, "orval"), "--config", "orval.config.ts"], { cwd, env });
    }),
    check("kubb", ["@kubb/cli", "@kubb/plugin-client", "axios"], false, async (world, cwd) => {
      await world.run([program(world, "kubb"), "generate"], { cwd, env: { DOCUMENTS: world.documents } });
    }),
    check("connect", ["@connectrpc/connect-web", "@bufbuild/protoc-gen-es"], false, async (world, cwd) => {
      await generateOpenapiTypes(world, join(world.build, "openapi-fetch"));
      await world.run(
        [
          "buf",
          "generate",
          world.protos,
          "--path",
          join(world.protos, "auth"),
          "--path",
          join(world.protos, "push"),
        ],
        { cwd },
      );
    }),
  ],
};
