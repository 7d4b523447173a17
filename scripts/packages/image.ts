/** The server as its image has it: the files of .dockerignore, and what the Dockerfile installs beside them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, globSync, lstatSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "../command.ts";
import { createInstallation } from "./installation.ts";

/** Milliseconds. */
const startTimeout = 120_000;

/** Bytes on the disk, folders included. */
function sizeOf(folder: string): number {
  const entries = globSync("**", { cwd: folder }).map((entry) => lstatSync(join(folder, entry)));
  return entries.reduce((sum, { blocks }) => sum + blocks * 512, 0);
}

const mebibytes = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MiB`;

/** @returns its size, with its ten largest packages */
function describeSize(modules: string): string {
  const sizes = globSync(["[!@]*", "@*/*"], { cwd: modules })
    .map((name) => ({ name, bytes: sizeOf(join(modules, name)) }))
    .sort((a, b) => b.bytes - a.bytes);
  const largest = sizes.slice(0, 10).map(({ name, bytes }) => `${name} ${mebibytes(bytes)}`);
  const sum = sizes.reduce((total, { bytes }) => total + bytes, 0);
  return `${sizes.length} packages of ${mebibytes(sum)} (${largest.join(", ")})`;
}

/** @returns what was installed, after it has started there */
export async function checkImage(folder: string): Promise<string> {
  const image = createInstallation(folder);
  const copy = (name: string) => cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  const files = [...readFileSync(join(ROOT, ".dockerignore"), "utf8").matchAll(/^!(\S+)$/gm)];
  for (const [, name = ""] of files) copy(name);
  const [, install = ""] = /^RUN (npm ci .+)$/m.exec(readFileSync(join(ROOT, "Dockerfile"), "utf8")) ?? [];
  await image.run("sh", "-c", install);
  const installed = describeSize(join(folder, "node_modules"));
  const listening = await started(folder);
  // A clone has the packages, too: they bring nothing else along.
  for (const manifest of globSync("packages/*/package.json", { cwd: ROOT })) copy(manifest);
  // Under `npm run --silent`, npm would print no plan.
  const options = ["--ignore-scripts", "--dry-run", "--loglevel=error"];
  const plan = await image.run("npm", "ci", "--omit=dev", ...options);
  const planned = [...plan.matchAll(/^add (\S+)/gm)].map(([, name = ""]) => name);
  const isRemoved = (name: string) => install.split(" ").includes(`node_modules/${name}`);
  const others = planned.filter((name) => !name.startsWith("@gatepost/") && !isRemoved(name));
  if (planned.length === 0 || others.length > 0)
    throw new Error(
      `In a clone, \`npm ci --omit=dev\` installs more than in the image: ${others.join(", ")}`,
    );
  return `${installed}, and ${listening}; a clone gets no other packages`;
}

async function started(folder: string): Promise<string> {
  const ports = { SERVER_PORT: "0", GRPC_PORT: "0", MANAGEMENT_PORT: "0", DATA_DIR: join(folder, "data") };
  const child = spawn(process.execPath, ["src/start.js"], {
    cwd: folder,
    env: { PATH: process.env["PATH"], ...ports },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), startTimeout);
  const closed = once(child, "close");
  let output = "";
  try {
    for await (const text of child.stdout.setEncoding("utf8")) {
      output += text;
      if (/\bListening\b/.test(output)) return "a server that listens";
    }
    throw new Error(`The image does not start:\n${output}`);
  } finally {
    clearTimeout(timer);
    child.kill("SIGTERM");
    child.stdout.resume();
    child.stderr.resume();
    await closed;
  }
}
