/**
 * A program that keeps one PostgreSQL cluster for as long as its standard input is open, and removes it then.
 * A pipe closes however its other end goes, so that nothing is left after Ctrl+C, a crash or kill -9 of the tests
 * that the cluster is for. Run as `node keeper.ts BINARIES PRIMARY [NAME=VALUE …]` with settings of the server;
 * PRIMARY is the URL of the server that it is to be a standby of, or empty.
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
import { serverUser } from "./binaries.ts";

/** Lines of the server's log that are shown if it ends by itself. */
const shownLines = 20;

const [binaries = "", primary = "", ...settings] = process.argv.slice(2);
const owner = serverUser();
const directory = mkdtempSync(join(tmpdir(), "gatepost-postgresql-"));
const data = join(directory, "data");
const log: string[] = [];
let server: ChildProcess | undefined;
let ending = false;

process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
process.stdin.resume().on("end", end).on("error", end);
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, end);

if (owner) chownSync(directory, owner.uid, owner.gid);
const [maker, ...making] =
  primary === ""
    ? ["initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8"]
    : ["pg_basebackup", `--dbname=${primary}`, "--write-recovery-conf", "--checkpoint=fast"];
execFileSync(join(binaries, maker), ["--pgdata", data, "--no-sync", ...making], {
  ...owner,
  cwd: directory,
  env: environment(),
  stdio: ["ignore", "ignore", "inherit"],
});
const port = await start();
if (port === undefined) {
  if (!ending) process.stderr.write(`PostgreSQL did not start:\n${log.join("\n")}\n`);
  process.exit(ending ? 0 : 1);
}
process.stdout.write(`postgres://postgres@127.0.0.1:${port}/postgres\n`);
await once(process, "exit");

/** PostgreSQL takes no port 0: it is given ports outside of those that connections use, until one is free. */
async function start(): Promise<number | undefined> {
  for (let attempt = 0; attempt < 20 && !ending; attempt += 1) {
    const port = randomInt(12_000, 30_000);
    if (await listens(port)) return port;
    if (!log.some((line) => line.includes("could not bind"))) return undefined;
  }
  return undefined;
}

/** @returns false if the server ended before it accepted connections */
async function listens(port: number): Promise<boolean> {
  const given = settings.flatMap((setting) => ["-c", setting]);
  const sockets = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="];
  const child = spawn(
    join(binaries, "postgres"),
    ["-D", data, "-p", String(port), ...sockets, "-c", "lc_messages=C", ...given],
    { ...owner, cwd: directory, env: environment(), stdio: ["ignore", "ignore", "pipe"] },
  );
  server = child;
  if (ending) end();
  const { promise, resolve } = Promise.withResolvers<boolean>();
  createInterface({ input: child.stderr }).on("line", (line) => {
    log.push(line);
    if (log.length > shownLines) log.shift();
    if (!/ready to accept (read-only )?connections/.test(line)) return;
    child.once("exit", ended);
    resolve(true);
  });
  child.once("close", () => resolve(false));
  return promise;
}

/** The server has ended: because it was stopped, or by itself, which is a failure. */
function ended(): void {
  if (!ending) process.stderr.write(`PostgreSQL ended by itself:\n${log.join("\n")}\n`);
  process.exit(ending ? 0 : 1);
}

/** A fast shutdown: transactions in progress are rolled back, connections closed. */
function end(): void {
  ending = true;
  server?.kill("SIGINT");
}

/** Names and e-mail addresses are compared by the rules of UTF-8, as on a server that was set up for it. */
function environment(): NodeJS.ProcessEnv {
  return { ...process.env, LC_ALL: process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8" };
}
