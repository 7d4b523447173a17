/** The verifier as users have it: packed, and installed beside the frameworks in an empty folder. */
import { execFile } from "node:child_process";
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { root } from "../../support/program.ts";

const execute = promisify(execFile);
const bin = join(root, "node_modules/.bin");

export const frameworks = ["express", "fastify", "hono", "node-http", "connect", "grpc-js"] as const;
export type Framework = (typeof frameworks)[number];

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
