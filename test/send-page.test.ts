/** docs/push/send.md: its requests, run in their order against a server, print what the page shows. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, test } from "vitest";
import { operatorOf } from "./push/end-to-end/operator.ts";
import { authApi } from "./support/auth-api.ts";
import { root } from "./support/program.ts";
import { type PushServer, startPushServer } from "./support/push-server.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

interface Command {
  readonly section: string;
  readonly command: string;
  readonly shown: string;
}

/** The commands of the page, with what each is shown to print. */
function commandsOf(page: string): Command[] {
  return page.split(/^(?=## )/m).flatMap((section) => {
    const name = /^## (.*)/.exec(section)?.[1] ?? "Devices";
    const blocks = [...section.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].map(([, block = ""]) => block);
    const texts = blocks.flatMap((block) => block.split(/^\$ /m).slice(1));
    return texts.map((text) => ({ section: name, ...commandIn(text.trimEnd().split("\n")) }));
  });
}

/** A command goes on while a quote is open, or its line ends with a backslash. */
function commandIn(lines: readonly string[]): { command: string; shown: string } {
  const end = lines.findIndex((line, index) => {
    const quotes =
      lines
        .slice(0, index + 1)
        .join("")
        .split("'").length - 1;
    return quotes % 2 === 0 && !line.endsWith("\\");
  });
  return { command: lines.slice(0, end + 1).join("\n"), shown: lines.slice(end + 1).join("\n") };
}

/** Without what is another each time. */
const masked = (text: string) =>
  text
    .replaceAll(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "ID")
    .replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME")
    .replaceAll(/(eyJhbGciOiJSUzI1NiIsInR5cCI6|gpr_)[\w.…-]+/g, "$1");

const commands = commandsOf(readFileSync(join(root, "docs/push/send.md"), "utf8"));
const env: Record<string, string> = { PATH: process.env["PATH"] ?? "" };
let server: PushServer;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startPushServer("PGlite");
  cleanup.defer(() => server.stop());
  const auth = authApi(server.authBase);
  const { id } = await auth.newIdentity();
  const { as } = await operatorOf(server);
  Object.assign(env, {
    PUSH: `${server.base}/v1/pushprovider`,
    ACCESS_TOKEN: (await auth.newPair(id)).access_token,
    BACKOFFICE_TOKEN: as.replace("Bearer ", ""),
    USER: id,
  });
});

/** @returns what it prints */
async function run(command: string): Promise<string> {
  const own = command
    .replaceAll('"u-1"', `"${env["USER"]}"`)
    .replaceAll("http://127.0.0.1:8080", new URL(server.base).origin);
  const { stdout } = await promisify(execFile)("sh", ["-c", own], { env });
  return stdout.trim();
}

test.each(commands)("$section: $command", async ({ section, command, shown }) => {
  if (command.startsWith("ID=")) return;
  // The outcomes of a send come in the background.
  const repeat = section === "What became of it" ? waitFor : (check: () => Promise<void>) => check();
  await repeat(async () => {
    const printed = await run(command);
    expect(masked(printed.replaceAll(env["USER"] ?? "", "u-1"))).toBe(masked(shown));
    if (section === "To one user") env["ID"] = JSON.parse(printed).id;
  });
});

test("the page shows requests", () => {
  expect(commands.length).toBeGreaterThan(8);
});
