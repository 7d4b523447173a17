/** Go: generated clients, gRPC, validators of documents, and a resource server. */
import { cpSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { checkIntrospection } from "../introspection.ts";
import type { Language, World } from "../language.ts";
import {
  generateWithOpenapiGenerator,
  openapiGeneratorToolchain,
  openapiGeneratorVersion,
} from "../openapi-generator.ts";
import { checkResourceServer } from "../resource-server.ts";
import { ghzCheck, grpcurlCheck } from "./tools.ts";

const modules = readFileSync(join(import.meta.dirname, "go.mod"), "utf8");

/** A module's name and the version that go.mod pins. */
function pinned(module: string): string {
  const line = modules.split("\n").find((text) => text.trim().startsWith(`${module} v`));
  const [, version = ""] = / v(\S+)/.exec(line?.slice(line.indexOf(module) + module.length) ?? "") ?? [];
  return `${basename(module.replace(/\/v\d+$/, ""))} ${version}`;
}

/** Without cgo: nothing needs it, and a part of the standard library would be compiled by a C compiler. */
async function go(world: World, ...args: string[]): Promise<void> {
  await world.run(["go", ...args], { env: { GATEPOST_DOCUMENTS: world.documents, CGO_ENABLED: "0" } });
}

/** Compiles packages, examines them with every analyzer of `go vet`, and runs their tests. */
async function test(world: World, ...packages: string[]): Promise<void> {
  await go(world, "vet", ...packages);
  await go(world, "test", "-vet=off", "-count=1", ...packages);
}

/** As `test` does. */
async function testRpc(world: World): Promise<void> {
  await go(world, "vet", "./rpc");
  const program = join(world.build, "bin/rpc.test");
  await go(world, "test", "-vet=off", "-c", "-o", program, "./rpc");
  await world.withDrainingServer((env) => world.run([program], { env }));
}

/** With the defaults, as docs/clients says: nothing but what to generate and where to. */
async function generateClients(world: World): Promise<void> {
  for (const name of ["auth", "push"]) {
    const folder = join("gen", name);
    mkdirSync(join(world.build, folder), { recursive: true });
    const output = ["-package", name, "-o", join(folder, `${name}.gen.go`)];
    const document = join(world.documents, `${name}.json`);
    await go(world, "tool", "oapi-codegen", "-generate", "types,client", ...output, document);
  }
}

async function generateFromProtos(world: World): Promise<void> {
  const paths = ["auth", "push"].flatMap((name) => ["--path", join(world.protos, name)]);
  await world.run(["buf", "generate", world.protos, "--template", "buf.gen.yaml", ...paths]);
}

/** Its two options: names of enum values that do not collide, and members of tomorrow that are no error. */
async function walkWithOpenapiGenerator(world: World): Promise<void> {
  for (const document of ["auth", "push"] as const) {
    await generateWithOpenapiGenerator(world, {
      generator: "go",
      document,
      output: join("gen", "generator", document),
      properties: {
        packageName: document,
        withGoMod: "false",
        enumClassPrefix: "true",
        disallowAdditionalPropertiesIfNotPresent: "false",
      },
      options: ["--global-property=apiTests=false,modelTests=false"],
    });
    rmSync(join(world.build, "gen", "generator", document, "test"), { recursive: true, force: true });
  }
  await test(world, "./gen/generator/auth", "./gen/generator/push", "./generator");
}

async function checkProtection(world: World): Promise<void> {
  await go(world, "vet", "./protect");
  await go(world, "build", "-o", "bin/protect", "./protect");
  const program = join(world.build, "bin/protect");
  await checkResourceServer(world, "introspection", [program, "introspection"]);
  await checkResourceServer(world, "key set", [program, "key-set"]);
}

export const language: Language = {
  name: "go",
  toolchain: [{ name: "go", install: "https://go.dev/doc/install" }, ...openapiGeneratorToolchain],
  /** Go builds modules: what is generated and what uses it stand in one, below the build folder. */
  async prepare(world) {
    rmSync(join(world.build, "gen"), { recursive: true, force: true });
    cpSync(world.sources, world.build, { recursive: true, filter: (file) => !file.endsWith(".ts") });
    await go(world, "mod", "download");
  },
  checks: [
    {
      tool: pinned("github.com/oapi-codegen/oapi-codegen/v2"),
      holds: "generates with its defaults, passes vet, walks through both services",
      short: true,
      async run(world) {
        await generateClients(world);
        await test(world, "./gen/auth", "./gen/push", "./openapi", "./connect");
        await go(world, "run", "./connect");
      },
    },
    {
      tool: `openapi-generator ${openapiGeneratorVersion}, go`,
      holds: "generates, passes vet, walks through both services",
      short: false,
      run: walkWithOpenapiGenerator,
    },
    {
      tool: `${pinned("google.golang.org/grpc")}, ${pinned("connectrpc.com/connect")}`,
      holds:
        "introspects and watches progress over gRPC, gRPC-Web and Connect; keepalive, limits and drain hold",
      short: false,
      async run(world) {
        await generateFromProtos(world);
        await test(world, "./gen/proto/...", "./introspect");
        await testRpc(world);
        const program = join(world.build, "bin/introspect");
        await go(world, "build", "-o", program, "./introspect");
        await checkIntrospection(world, (env) => world.run([program], { env }));
      },
    },
    grpcurlCheck,
    ghzCheck,
    {
      tool: `${pinned("github.com/getkin/kin-openapi")}, ${pinned("github.com/pb33f/libopenapi-validator")}`,
      holds: "find the documents valid, and the traffic of a walk as well",
      short: false,
      async run(world) {
        await generateClients(world);
        await test(world, "./documents");
      },
    },
    {
      tool: pinned("github.com/coreos/go-oidc/v3"),
      holds: "finds auth by its issuer, verifies access tokens by the key set",
      short: false,
      run: (world) => test(world, "./discovery"),
    },
    {
      tool: `${pinned("github.com/golang-jwt/jwt/v5")}, ${pinned("github.com/MicahParks/jwkset")}`,
      holds: "protects an API by introspection and by the key set",
      short: false,
      run: checkProtection,
    },
  ],
};
