/** The runtimes that import the packages, from the registry. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Installation } from "./installation.ts";

export interface Runtime {
  readonly name: string;
  /** With the switch for programs that collect memory when they wish. */
  readonly command: readonly [string, ...string[]];
}

const denoSwitches = ["--allow-all", "--v8-flags=--expose-gc"] as const;
const nodes = { "Node.js 20": "20", "Node.js 22": "22" };

/**
 * Installs them into `tools`. @returns those that can be had for this platform, and the names of the others.
 * @throws where `CI` is set and one cannot
 */
export async function installRuntimes(tools: Pick<Installation, "folder" | "install">) {
  const { platform, arch } = process;
  const modules = join(tools.folder, "node_modules");
  const wanted = [
    ...Object.entries(nodes).map(([name, version]) => ({
      ...{ name, source: `node${version}@npm:node-${platform}-${arch}@${version}` },
      command: [join(modules, `node${version}/bin/node`), "--expose-gc"] as const,
    })),
    {
      ...{ name: "Bun", source: `@oven/bun-${platform}-${arch}@1` },
      command: [join(modules, `@oven/bun-${platform}-${arch}/bin/bun`)] as const,
    },
    {
      ...{ name: "Deno", source: `@deno/${platform}-${arch}-glibc@2` },
      command: [join(modules, `@deno/${platform}-${arch}-glibc/deno`), "run", ...denoSwitches] as const,
    },
  ];
  const runtimes: Runtime[] = [{ name: "Node.js 24", command: [process.execPath, "--expose-gc"] }];
  const missing: string[] = [];
  for (const { name, source, command } of wanted) {
    const reason = await tools.install("--force", source).then(
      () => (existsSync(command[0]) ? undefined : `${source} has no ${command[0]}`),
      (error: Error) => error.message,
    );
    if (reason === undefined) runtimes.push({ name, command });
    else if (process.env["CI"]) throw new Error(`Where CI is set, ${name} may not be missing. ${reason}`);
    else missing.push(name);
  }
  return { runtimes, missing };
}
