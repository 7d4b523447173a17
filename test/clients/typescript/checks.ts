/**
 * TypeScript: `packages/` has programs that use the packages of this repository, packed and installed. Each other folder
 * is a program that walks through both services with the client of one generator. They are copied to the build folder, a
 * project with its own node_modules, as a user has one.
 */
import { cpSync, existsSync, globSync, readFileSync, rmSync } from "node:fs";
import { delimiter, join } from "node:path";
import { ROOT } from "../../../scripts/command.ts";
import { openFront } from "../../support/front.ts";
import { createAccount, revoke, signIn } from "../accounts.ts";
import { checkIntrospection } from "../introspection.ts";
import type { Check, Language, World } from "../language.ts";
import { expectRefusal, expectUser, withResourceServer } from "../resource-server.ts";

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
  await world.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=5"]);
  cpSync(join(world.sources, "package-lock.json"), installed);
}

/** Packages with their versions, as the table shows them. */
const toolOf = (packages: readonly string[]) =>
  packages.map((name) => `${name} ${versions[name]}`).join(", ");

/** @param folder has `main.ts`, the walk. @param packages those that make up the tool */
function check(
  folder: string,
  packages: readonly string[],
  short: boolean,
  generate: (world: World, cwd: string) => Promise<void>,
): Check {
  return {
    tool: toolOf(packages),
    holds: HOLDS,
    short,
    async run(world) {
      const cwd = join(world.build, folder);
      rmSync(join(cwd, "generated"), { recursive: true, force: true });
      await generate(world, cwd);
      await world.run([program(world, "tsc")], { cwd });
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

/** Packs and installs the packages, and runs the programs that the pages show of them. */
async function checkPackages(world: World): Promise<void> {
  const cwd = join(world.build, "packages");
  for (const old of globSync(["node_modules", "*.tgz"], { cwd }))
    rmSync(join(cwd, old), { recursive: true, force: true });
  // The client's build makes the contracts, too: none is built twice.
  const builds = ["client", "verifier"].map((name) => ["node", "scripts/packages/build.ts", name] as const);
  await Promise.all(builds.map((build) => world.run([...build], { cwd: ROOT })));
  const pack = ["--silent", "--ignore-scripts", "--workspaces", "--pack-destination", cwd];
  await world.run(["npm", "pack", ...pack], { cwd: ROOT });
  const tarballs = globSync("*.tgz", { cwd }).map((file) => `./${file}`);
  const quiet = ["--no-save", "--no-package-lock", "--no-audit", "--no-fund", "--fetch-retries=5"];
  await world.run(["npm", "install", ...quiet, ...tarballs], { cwd });
  await world.run([program(world, "tsc")], { cwd });
  await world.run(["node", "connect.ts"], { cwd });
  await checkIntrospection(world, (env) => world.run(["node", "introspect.ts"], { cwd, env }));
  await checkApi(world, cwd);
}

async function checkApi(world: World, cwd: string): Promise<void> {
  const account = await createAccount(world.authUrl);
  const { access_token } = await signIn(world.authUrl, account, "backend");
  // A port that was free a moment ago.
  const front = await openFront();
  await front.close();
  const env = { PORT: new URL(front.origin).port };
  await withResourceServer(world, ["node", "api.ts"], { cwd, env }, async (url) => {
    await expectRefusal("no token", url, undefined);
    await expectUser("a good token", url, `Bearer ${access_token}`, account.user);
    await revoke(world.authUrl, "backend", access_token);
    await expectRefusal("a revoked token", url, `Bearer ${access_token}`);
  });
}

/** Spectral is a program of 190 packages: here it costs nobody who installs the project. */
const spectral: Check = {
  tool: toolOf(["@stoplight/spectral-cli", "@stoplight/spectral-owasp-ruleset"]),
  holds: "finds nothing in the documents but what spectral/ruleset.yaml argues for",
  short: true,
  async run(world) {
    const cwd = join(world.build, "spectral");
    cpSync(world.documents, cwd, { recursive: true });
    const documents = ["auth.yaml", "push.yaml"] as const;
    const strict = ["--ruleset", "ruleset.yaml", "--fail-severity", "hint"] as const;
    await world.run([program(world, "spectral"), "lint", ...documents, ...strict], { cwd });
  },
};

export const language: Language = {
  name: "typescript",
  toolchain: [{ name: "npm", install: "https://nodejs.org/en/download" }],
  prepare,
  checks: [
    spectral,
    {
      tool: "@gatepost/client, @gatepost/verifier",
      holds: "packed and installed, compile in the strictest mode; connect, introspect, protect an API",
      short: true,
      run: checkPackages,
    },
    check("openapi-fetch", ["openapi-typescript", "openapi-fetch"], false, generateOpenapiTypes),
    check("hey-api", ["@hey-api/openapi-ts"], true, async (world, cwd) => {
      await world.run([program(world, "openapi-ts")], { cwd });
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
      const paths = ["auth", "push"].flatMap((name) => ["--path", join(world.protos, name)]);
      // buf is the root's; the plugin is this project's, as it is in a user's project.
      const bins = [world.build, ROOT].map((folder) => join(folder, "node_modules", ".bin"));
      const env = { PATH: [...bins, process.env["PATH"]].join(delimiter) };
      await world.run(["buf", "generate", world.protos, ...paths], { cwd, env });
    }),
  ],
};
