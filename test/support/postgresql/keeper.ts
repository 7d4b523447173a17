/**
 * A program that keeps one PostgreSQL cluster for as long as its standard input is open, and removes it then.
 * A pipe closes however its other end goes, so that nothing is left after Ctrl+C, a crash or kill -9 of the tests
 * that the cluster is for. Run as `node keeper.ts BINARIES [NAME=VALUE …]` with settings of the server.
 *
 * Its first line on standard output is the superuser's URL.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const [binaries = "", ...settings] = process.argv.slice(2);
const directory = mkdtempSync(join(tmpdir(), "gatepost-postgresql-"));
const data = join(directory, "data");
const owner = unprivilegedUser();
let server: ChildProcess | undefined;
let ending = false;

process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
process.stdin.resume().on("end", end).on("error", end);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, end);

if (owner) chownSync(directory, owner.uid, owner.gid);
execFileSync(
  join(binaries, "initdb"),
  ["--pgdata", data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync"],
  { ...owner, cwd: directory, env: environment(), stdio: ["ignore", "ignore", "inherit"] },
);
const port = await start();
process.stdout.write(`postgres://postgres@127.0.0.1:${port}/postgres\n`);

/** PostgreSQL takes no port 0: it is given ports outside of those that connections use, until one is free. */
async function start(): Promise<number> {
  for (let attempt = 1; ; attempt += 1) {
    const port = randomInt(12_000, 30_000);
    const log = await listens(port);
    if (log === undefined) return port;
    if (attempt === 20 || !log.includes("could not bind"))
      throw new Error(`PostgreSQL did not start:\n${log}`);
  }
}

/** @returns undefined once it accepts connections; what it logged if it ended before */
async function listens(port: number): Promise<string | undefined> {
  const given = settings.flatMap((setting) => ["-c", setting]);
  const sockets = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="];
  const child = spawn(
    join(binaries, "postgres"),
    ["-D", data, "-p", String(port), ...sockets, "-c", "lc_messages=C", ...given],
    { ...owner, cwd: directory, env: environment(), stdio: ["ignore", "ignore", "pipe"] },
  );
  server = child;
  if (ending) end();
  let log = "";
  for await (const line of createInterface({ input: child.stderr })) {
    log += `${line}\n`;
    if (!line.includes("ready to accept connections")) continue;
    child.stderr.resume();
    child.once("exit", () => process.exit(ending ? 0 : 1));
    return undefined;
  }
  return log;
}

/** A fast shutdown: transactions in progress are rolled back, connections closed. */
function end(): void {
  ending = true;
  if (server === undefined) return;
  if (server.exitCode !== null) process.exit();
  server.kill("SIGINT");
}

/** PostgreSQL refuses to run as root; the packages make a user for it. */
function unprivilegedUser(): { readonly uid: number; readonly gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync("id", [flag, "postgres"], { encoding: "utf8" }));
  return { uid: id("-u"), gid: id("-g") };
}

/** Names and e-mail addresses are compared by the rules of UTF-8, as on a server that was set up for it. */
function environment(): NodeJS.ProcessEnv {
  return { ...process.env, LC_ALL: process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8" };
}

await once(process, "exit");
