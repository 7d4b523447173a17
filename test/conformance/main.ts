/**
 * `npm run test:conformance [-- --trace --run <pattern>]`: the conformance suite of Connect, gRPC and gRPC-Web by their
 * makers, against a server of its service on our RPC handler. Needs Go, which builds the suite and brings its protos.
 * What is known to fail, and why, is in `known-failing.txt`. `--run` may be repeated.
 */
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { outputOf, ROOT, run, say, usageIn } from "../../scripts/command.ts";
import { readArguments } from "../../src/command.ts";
import { findGo } from "../support/http2-programs.ts";

const { values: asked } = readArguments({
  usage: usageIn(import.meta.filename),
  options: { trace: { type: "boolean" }, run: { type: "string", multiple: true } },
});

const module = "connectrpc.com/conformance";
const version = "v1.0.7";
const folder = join(ROOT, ".data", "conformance", version);
const program = join(folder, "connectconformance");

const go = findGo();
if (go === undefined) {
  say("The conformance suite needs Go: https://go.dev/doc/install");
  process.exit(1);
}
mkdirSync(folder, { recursive: true });
Object.assign(process.env, { GOBIN: folder, CGO_ENABLED: "0" });
if (!existsSync(program)) await outputOf(go, "install", `${module}/cmd/connectconformance@${version}`);
const { Dir: sources }: { Dir: string } = JSON.parse(
  await outputOf(go, "mod", "download", "-json", `${module}@${version}`),
);
const descriptors = join(folder, "descriptors.binpb");
await outputOf("buf", "build", join(sources, "proto"), "--output", descriptors);
const suite = [
  ...["--mode", "server", "--conf", join(import.meta.dirname, "features.yaml")],
  ...["--known-failing", `@${join(import.meta.dirname, "known-failing.txt")}`],
  ...(asked.trace ? ["--trace"] : []),
  ...(asked.run ?? []).flatMap((pattern) => ["--run", pattern]),
];
const server = [process.execPath, join(import.meta.dirname, "server.ts"), descriptors];
const { ok } = await run(program, [...suite, "--", ...server], true);
process.exitCode = ok ? 0 : 1;
