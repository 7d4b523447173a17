/** Python: generated clients, gRPC, a parser of YAML 1.1, Schemathesis, and a resource server. */
import { createHash } from "node:crypto";
import { cpSync, existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { checkIntrospection } from "../introspection.ts";
import type { Language, World } from "../language.ts";
import {
  generateWithOpenapiGenerator,
  openapiGeneratorToolchain,
  openapiGeneratorVersion,
} from "../openapi-generator.ts";
import { checkResourceServer } from "../resource-server.ts";
import { checkWithSchemathesis } from "./schemathesis.ts";
import { python, runIn, tool } from "./venv.ts";

const requirements = readFileSync(join(import.meta.dirname, "requirements.txt"), "utf8");

/** A package and the version that requirements.txt pins. */
function pinned(name: string): string {
  const [, version] = new RegExp(`^${name}==(\\S+)`, "m").exec(requirements) ?? [];
  return `${name} ${version}`;
}

/** The virtual environment is made anew when the requirements have changed. */
async function install(world: World): Promise<void> {
  const venv = join(world.build, "venv");
  const stamp = join(venv, createHash("sha256").update(requirements).digest("hex"));
  if (existsSync(stamp)) return;
  rmSync(venv, { recursive: true, force: true });
  await world.run(["python3", "-m", "venv", venv]);
  const file = join(world.sources, "requirements.txt");
  const patient = ["--retries", "5", "--timeout", "30"];
  await python(
    world,
    "-m",
    "pip",
    "install",
    "--quiet",
    ...patient,
    "--require-hashes",
    "--requirement",
    file,
  );
  writeFileSync(stamp, "");
}

/** Holds programs and the code that they import to mypy's strictest mode, then runs them. */
async function walk(world: World, ...names: string[]): Promise<void> {
  for (const file of await checkTypes(world, ...names)) await python(world, file);
}

/** @returns the paths of the programs */
async function checkTypes(world: World, ...names: string[]): Promise<string[]> {
  const files = names.map((name) => join(world.sources, `${name}.py`));
  await tool(world, "mypy", "--strict", "--cache-dir", join(world.build, "mypy"), ...files);
  return files;
}

async function walkWithOpenapiPythonClient(world: World): Promise<void> {
  for (const name of ["auth", "push"]) {
    const output = ["--output-path", `${name}_client`, "--overwrite", "--meta", "none"];
    const document = join(world.documents, `${name}.json`);
    await tool(
      world,
      "openapi-python-client",
      "generate",
      "--fail-on-warning",
      "--path",
      document,
      ...output,
    );
  }
  await walk(world, "walk_openapi_python_client", "connect");
}

async function walkWithModels(world: World): Promise<void> {
  for (const name of ["auth", "push"]) {
    const input = ["--input", join(world.documents, `${name}.json`), "--input-file-type", "openapi"];
    const output = ["--output", `${name}_models.py`, "--output-model-type", "pydantic_v2.BaseModel"];
    const options = ["--use-annotated", "--target-python-version", "3.11"];
    await tool(world, "datamodel-codegen", ...input, ...output, ...options);
  }
  await walk(world, "walk_datamodel", "connect_models");
}

async function walkWithOpenapiGenerator(world: World): Promise<void> {
  for (const document of ["auth", "push"] as const) {
    const folder = await generateWithOpenapiGenerator(world, {
      generator: "python",
      document,
      output: join("openapi-generator", document),
      properties: { packageName: `${document}_openapi` },
    });
    cpSync(join(folder, `${document}_openapi`), join(world.build, `${document}_openapi`), {
      recursive: true,
    });
  }
  // Not by mypy: the generated code is not typed throughout.
  await python(world, join(world.sources, "walk_openapi_generator.py"));
}

async function walkWithGrpc(world: World): Promise<void> {
  const output = join(world.build, "proto");
  mkdirSync(output, { recursive: true });
  const plugins = ["python", "grpc_python", "mypy", "mypy_grpc"].map((name) => `--${name}_out=${output}`);
  const protos = globSync("{auth,push}/v1/*.proto", { cwd: world.protos });
  await python(world, "-m", "grpc_tools.protoc", `--proto_path=${world.protos}`, ...plugins, ...protos);
  const [walk = "", program = ""] = await checkTypes(world, "walk_grpc", "introspect_token");
  await python(world, walk);
  await checkIntrospection(world, (env) => runIn(world, ["python", program], { env }));
}

async function protect(world: World): Promise<void> {
  const folder = join(world.sources, "resource-server");
  const cache = join(world.build, "mypy-resource-server");
  await tool(world, "mypy", "--strict", "--cache-dir", cache, ...globSync(join(folder, "*.py")));
  for (const protection of ["introspection", "key set"] as const) {
    const program = [join(folder, "main.py"), protection.replace(" ", "_")] as const;
    await checkResourceServer(world, protection, [join(world.build, "venv/bin/python"), ...program]);
  }
}

const withSchemathesis = { tool: pinned("schemathesis"), holds: "finds nothing with all of its checks" };

export const language: Language = {
  name: "python",
  toolchain: [{ name: "python3", install: "https://www.python.org/downloads" }, ...openapiGeneratorToolchain],
  prepare: install,
  checks: [
    {
      tool: pinned("pyyaml"),
      holds: "reads both documents as YAML 1.1",
      short: true,
      async run(world) {
        const documents = ["auth", "push"].map((name) => join(world.documents, `${name}.yaml`));
        await python(world, join(world.sources, "yaml_documents.py"), ...documents);
      },
    },
    {
      tool: pinned("openapi-python-client"),
      holds: "generates without a warning, passes mypy --strict, walks through both services",
      short: true,
      run: walkWithOpenapiPythonClient,
    },
    {
      tool: pinned("datamodel-code-generator"),
      holds: "its pydantic models pass mypy --strict and walk through both services",
      short: false,
      run: walkWithModels,
    },
    {
      tool: `openapi-generator ${openapiGeneratorVersion}, python`,
      holds: "generates, walks through both services",
      short: false,
      run: walkWithOpenapiGenerator,
    },
    {
      tool: pinned("grpcio"),
      holds: "introspects and watches progress over gRPC; passes mypy --strict",
      short: false,
      run: walkWithGrpc,
    },
    {
      tool: pinned("authlib"),
      holds:
        "misses one endpoint in both discovery documents; its client gets, renews, introspects and revokes tokens",
      short: false,
      run: (world) => walk(world, "walk_authlib"),
    },
    {
      tool: `${pinned("fastapi")}, httpx, ${pinned("pyjwt")}`,
      holds: "protects an API by introspection and by the key set",
      short: false,
      run: protect,
    },
    {
      ...withSchemathesis,
      holds: "finds nothing with all of its checks in 50 cases for each document",
      short: true,
      run: (world) => checkWithSchemathesis(world, { atLeast: 50, repeatable: true }),
    },
    {
      ...withSchemathesis,
      holds: "finds nothing with all of its checks in 2,000 cases for each document",
      short: false,
      run: (world) => checkWithSchemathesis(world, { atLeast: 2_000, repeatable: false }),
    },
  ],
};
