/** The verifier as users have it: packed, installed beside the frameworks in an empty folder, and called from outside. */
import { execFile } from "node:child_process";
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { root, startProgram } from "../../support/program.ts";
import { waitFor } from "../../support/wait-for.ts";

const execute = promisify(execFile);
const bin = join(root, "node_modules/.bin");

export const frameworks = ["express", "fastify", "hono", "node-http", "connect", "grpc-js"] as const;
export type Framework = (typeof frameworks)[number];
export type Addresses = Readonly<Record<"strict" | "keys" | "cold", Readonly<Record<Framework, string>>>>;

async function run(cwd: string, file: string, ...args: string[]): Promise<string> {
  const env = { ...process.env, PATH: `${bin}:${process.env["PATH"]}` };
  const { stdout } = await execute(file, args, { cwd, env, maxBuffer: 16 * 1024 * 1024 }).catch((cause) => {
    throw new Error(`${file} ${args.join(" ")} failed:\n${cause.stdout}\n${cause.stderr}`, { cause });
  });
  return stdout;
}

/** @returns the folder, in which the programs compile against the packed types; the declarations name no source file */
export async function installApis(cleanup: AsyncDisposableStack): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-verifier-"));
  cleanup.defer(() => rmSync(folder, { recursive: true, force: true }));
  const source = join(root, "packages/verifier");
  await run(source, "npm", "pack", "--pack-destination", folder);
  const [tarball = ""] = globSync("*.tgz", { cwd: folder });
  cpSync(join(import.meta.dirname, "apis"), folder, { recursive: true });
  cpSync(join(root, "gen/proto/grpc/health/v1/health_pb.ts"), join(folder, "health_pb.ts"));
  await run(folder, "npm", "install", "--no-audit", "--no-fund", `./${tarball}`);
  await run(folder, join(bin, "tsc"), "-p", folder);
  return folder;
}

/** Declarations that name a source file, which is not packed. */
export function unresolvable(folder: string): string[] {
  const files = globSync("node_modules/@gatepost/verifier/dist/*.d.ts", { cwd: folder });
  if (files.length === 0) throw new Error("the package has no declarations");
  return files.filter((file) => /from "[^"]+(?<!\.d)\.ts"/.test(readFileSync(join(folder, file), "utf8")));
}

export async function startApis(
  folder: string,
  issuer: string,
  cleanup: AsyncDisposableStack,
): Promise<Addresses> {
  const program = startProgram([process.execPath, join(folder, "main.ts"), issuer], {}, folder);
  cleanup.defer(async () => {
    program.child.kill("SIGKILL");
    await program.ended();
  });
  return waitFor(() => {
    const [line] = /^\{.*\}$/m.exec(program.stdout()) ?? [];
    if (line === undefined) throw new Error(`The APIs do not listen yet: ${program.output()}`);
    return JSON.parse(line);
  });
}

/** How a request ended, as an HTTP status whatever the protocol. */
export interface Result {
  readonly status: number | undefined;
  readonly user: string | undefined;
  readonly challenge: string | undefined;
  readonly retryAfter: string | undefined;
}

export function call(framework: Framework, address: string, authorization?: string): Promise<Result> {
  if (framework === "grpc-js") return callGrpc(address, "/orders.v1.Orders/WhoAmI", authorization);
  const isConnect = framework === "connect";
  return callHttp(isConnect ? `${address}/grpc.health.v1.Health/Check` : address, isConnect, authorization);
}

async function callHttp(url: string, isConnect: boolean, authorization?: string): Promise<Result> {
  const headers = {
    ...(authorization !== undefined && { authorization }),
    ...(isConnect && { "content-type": "application/json" }),
  };
  const response = await fetch(url, { headers, ...(isConnect && { method: "POST", body: "{}" }) });
  const text = await response.text();
  return {
    status: response.status,
    user: response.ok ? (response.headers.get("x-user") ?? text) : undefined,
    challenge: response.headers.get("www-authenticate") ?? undefined,
    retryAfter: response.headers.get("retry-after") ?? undefined,
  };
}

const statuses: Readonly<Record<number, number>> = { 16: 401, 7: 403, 14: 503 };

export function callGrpc(address: string, path: string, authorization?: string): Promise<Result> {
  const client = new Client(address, credentials.createInsecure());
  const metadata = new Metadata();
  if (authorization !== undefined) metadata.set("authorization", authorization);
  const bytes = (value: Buffer) => value;
  return new Promise<Result>((resolve) => {
    client.makeUnaryRequest(path, bytes, bytes, Buffer.alloc(0), metadata, (error, value) => {
      const first = (name: string) => error?.metadata.get(name)[0]?.toString();
      resolve({
        status: error ? statuses[error.code] : 200,
        user: value?.toString(),
        challenge: first("www-authenticate"),
        retryAfter: first("retry-after"),
      });
    });
  }).finally(() => client.close());
}
