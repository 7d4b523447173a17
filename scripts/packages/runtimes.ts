/** The runtimes that import the packages: from the registry, and the Chromium of this machine. */
import { spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { Installation } from "./installation.ts";

export interface Runtime {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
}

const nodes = { "Node.js 20": "20", "Node.js 22": "22" };

/** Installs them into `tools`. @returns those that can be had for this platform, and the names of the others */
export async function installRuntimes(tools: Installation) {
  const { platform, arch } = process;
  const modules = join(tools.folder, "node_modules");
  const wanted = [
    ...Object.entries(nodes).map(([name, version]) => ({
      ...{ name, source: `node${version}@npm:node-${platform}-${arch}@${version}` },
      command: [join(modules, `node${version}/bin/node`)] as const,
    })),
    {
      ...{ name: "Bun", source: `@oven/bun-${platform}-${arch}@1` },
      command: [join(modules, `@oven/bun-${platform}-${arch}/bin/bun`)] as const,
    },
    {
      ...{ name: "Deno", source: `@deno/${platform}-${arch}-glibc@2` },
      command: [join(modules, `@deno/${platform}-${arch}-glibc/deno`), "run", "--allow-all"] as const,
    },
  ];
  const runtimes: Runtime[] = [{ name: "Node.js 24", command: [process.execPath] }];
  const missing: string[] = [];
  for (const { name, source, command } of wanted) {
    const isThere = await tools.install("--force", source).then(
      () => existsSync(command[0]),
      () => false,
    );
    if (isThere) runtimes.push({ name, command });
    else missing.push(name);
  }
  return { runtimes, missing };
}

/** What the page of test/packages/consumer tells. */
export interface Seen {
  readonly isPersistent: boolean;
  readonly text?: string;
  readonly x: string;
  readonly bytes: number;
}

/** Milliseconds. */
const visitTimeout = 60_000;

/**
 * Opens a page with this script in two browsers with one profile, one after the other.
 * @returns what each has told; undefined where this machine has no Chromium
 */
export async function seenInChromium(tools: Installation, script: string): Promise<Seen[] | undefined> {
  const file = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
  if (file === undefined) return undefined;
  const told = new EventEmitter();
  const server = createServer(async (request, response) => {
    if (request.url === "/script.js") {
      response.setHeader("content-type", "text/javascript").end(readFileSync(script));
    } else if (request.url === "/seen") {
      told.emit("seen", JSON.parse(await text(request)));
      response.end();
    } else {
      response.setHeader("content-type", "text/html").end('<script type="module" src="/script.js"></script>');
    }
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const origin = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`;
  const profile = `--user-data-dir=${join(tools.folder, "chromium")}`;
  const all: Seen[] = [];
  try {
    for (let visit = 0; visit < 2; visit++) {
      const seen = once(told, "seen", { signal: AbortSignal.timeout(visitTimeout) });
      // A group of its own, which ends with all of the browser's processes.
      const child = spawn(file, ["--headless", "--no-sandbox", "--disable-gpu", profile, origin], {
        stdio: "ignore",
        detached: true,
      });
      const closed = once(child, "close");
      try {
        const [one]: Seen[] = await seen;
        if (one) all.push(one);
      } finally {
        if (child.pid !== undefined) process.kill(-child.pid, "SIGTERM");
        await closed;
      }
    }
    return all;
  } finally {
    server.close();
    server.closeAllConnections();
  }
}
