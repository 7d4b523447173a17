/**
 * Rust: oas3-gen for HTTP, tonic for gRPC. The workspace is copied to the build folder, where the generated clients are
 * put among its sources; compiled crates are kept there between the runs.
 */
import { cpSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { checkIntrospection } from "../introspection.ts";
import type { Language, World } from "../language.ts";

const OAS3_GEN = "0.29.0";

const manifest = readFileSync(join(import.meta.dirname, "grpc", "Cargo.toml"), "utf8");
const [, TONIC = ""] = /^tonic = \{ version = "=([^"]+)"/m.exec(manifest) ?? [];

const tools = (world: World) => join(world.build, "tools");

/** The generator and the walks share what crates they have in common: one folder, one profile. */
function cargoEnvironment(world: World) {
  return {
    CARGO_TARGET_DIR: join(world.build, "target"),
    CARGO_PROFILE_DEV_DEBUG: "0",
    CARGO_INCREMENTAL: "0",
    CARGO_NET_RETRY: "5",
  };
}

async function fetchCrates(world: World): Promise<void> {
  const manifest = join(world.sources, "Cargo.toml");
  const fetch = ["cargo", "fetch", "--locked", "--quiet", "--manifest-path", manifest] as const;
  await world.run(fetch, { env: cargoEnvironment(world) });
}

/** Installs the generator unless this version of it is there: three minutes of processor time. */
async function installGenerator(world: World): Promise<void> {
  const installed = await world.run([join(tools(world), "bin", "oas3-gen"), "--version"]).catch(() => "");
  if (installed.trim() === `oas3-gen ${OAS3_GEN}`) return;
  const crate = ["oas3-gen", "--version", OAS3_GEN] as const;
  const install = ["cargo", "install", ...crate, "--locked", "--debug", "--root", tools(world)] as const;
  await world.run(install, { env: cargoEnvironment(world) });
}

/** Brings the workspace into the build folder, with clients of the documents as they are now. */
async function generate(world: World): Promise<void> {
  cpSync(world.sources, world.build, { recursive: true });
  for (const name of ["auth", "push"]) {
    const output = join(world.build, "client", "src", name);
    rmSync(output, { recursive: true, force: true });
    const input = join(world.documents, `${name}.json`);
    const client = name === "auth" ? "AuthClient" : "PushClient";
    // oas3-gen goes on where it does not understand a pattern: a warning is a failure here.
    const command = '"$0" "$@" 2>&1';
    const generator = join(tools(world), "bin", "oas3-gen");
    const args = [
      "generate",
      "client-mod",
      "--quiet",
      "--input",
      input,
      "--output",
      output,
      "--api-name",
      client,
    ];
    const said = await world.run(["sh", "-c", command, generator, ...args]);
    if (said.includes("Warning")) throw new Error(said);
  }
}

/** Compiles a program, in whose crates warnings are errors (Cargo.toml), and runs it. */
function walk(world: World, target: readonly string[], environment = {}): Promise<string> {
  const env = { ...cargoEnvironment(world), GATEPOST_PROTOS: world.protos, ...environment };
  return world.run(["cargo", "run", "--locked", "--quiet", ...target], { env });
}

export const language: Language = {
  name: "rust",
  toolchain: [{ name: "cargo", install: "https://rustup.rs" }],
  prepare: fetchCrates,
  checks: [
    {
      tool: `oas3-gen ${OAS3_GEN}`,
      holds: "generates without a warning, compiles without a warning, walks through both services",
      short: false,
      async run(world) {
        await installGenerator(world);
        await generate(world);
        await walk(world, ["--bin", "gatepost-client"]);
        await walk(world, ["--example", "connect"]);
      },
    },
    {
      tool: `tonic ${TONIC}`,
      holds: "compiles without a warning, introspects over gRPC",
      short: true,
      async run(world) {
        cpSync(world.sources, world.build, { recursive: true });
        await checkIntrospection(world, (env) => walk(world, ["--bin", "gatepost-introspect"], env));
      },
    },
    {
      tool: `tonic ${TONIC}`,
      holds: "compiles without a warning, introspects and watches progress over gRPC in the walk",
      short: false,
      async run(world) {
        await installGenerator(world);
        await generate(world);
        await walk(world, ["--bin", "gatepost-grpc"]);
      },
    },
  ],
};
