/** The Chromium of this machine, and a server of pages that are made of the built packages. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { root } from "../../support/program.ts";

export const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(
  existsSync,
);

/** The entries of the packages that need nothing that browsers lack, by the names under which they are imported. */
export function browserEntries(): Readonly<Record<string, string>> {
  const entries = ["contracts", "client", "verifier"].flatMap((name) => {
    const { exports } = JSON.parse(readFileSync(join(root, `packages/${name}/package.json`), "utf8"));
    return Object.entries<{ default?: string }>(exports).flatMap(([path, { default: file }]) =>
      file === undefined || /node$|connect|grpc|_pb$/.test(path)
        ? []
        : [[`@gatepost/${name}${path.slice(1)}`, `/packages/${name}${file.slice(1)}`] as const],
    );
  });
  return Object.fromEntries(entries);
}

/** @param respond to what a page asks for beside its modules. The page `/?<script>` runs that script, and `/?<script>&<script>` opens a tab for each */
export async function startPages(respond: (path: string, body: string) => Promise<string>) {
  const imports = { ...browserEntries(), jose: "/node_modules/jose/dist/webapi/index.js" };
  const html = ([own = "", ...others]: readonly string[]) =>
    `<script type="importmap">${JSON.stringify({ imports })}</script><script type="module" src="${own}"></script>` +
    others.map((other) => `<script>window.open("/?${other}", "_blank", "noopener")</script>`).join("");
  const server = createServer(async (request, response) => {
    const path = request.url ?? "/";
    if (path.startsWith("/?"))
      response.setHeader("content-type", "text/html").end(html(path.slice(2).split("&")));
    else if (/^\/(packages|node_modules|test)\/[^?]*\.js$/.test(path))
      response.setHeader("content-type", "text/javascript").end(readFileSync(join(root, path)));
    else response.end(await respond(path, await text(request)));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return {
    origin: `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** Opens the page in a browser of its own until `seen`. @param profile a folder, in which the browser keeps things */
export async function visit<T>(browser: string, page: string, profile: string, seen: Promise<T>): Promise<T> {
  const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-popup-blocking"];
  // A group of its own, which ends with all processes of the browser.
  const child = spawn(browser, [...flags, `--user-data-dir=${profile}`, page], {
    stdio: "ignore",
    detached: true,
  });
  const closed = once(child, "close");
  try {
    return await seen;
  } finally {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGTERM");
    await closed;
  }
}
