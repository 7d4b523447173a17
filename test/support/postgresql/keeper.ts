/**
 * A program that keeps one PostgreSQL cluster for as long as its standard input is open, and removes it then.
 * A pipe closes however its other end goes, so that nothing is left after Ctrl+C, a crash or kill -9 of the tests
 * that the cluster is for. Run as `node keeper.ts JSON`, with the arguments of `startCluster`.
 *
 * Its first line on standard output is the superuser's URL. Then it takes commands, one a line, and answers each
 * with `done` or `failed`: `fast` and `immediate` shut the server down, `kill` kills it, `start` starts it again.
 */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { codeOf } from "../../../src/platform/base/error-code.ts";
import { sparePort } from "../spare-port.ts";
import { serverUser } from "./binaries.ts";
import type { ClusterPlace } from "./cluster.ts";

/** Lines of the server's log that are shown if it ends by itself. */
const shownLines = 20;

interface Options extends ClusterPlace {
  readonly binaries: string;
  readonly settings: readonly string[];
  /** Empty for a primary. */
  readonly primary: string;
}

const options: Options = JSON.parse(process.argv[2] ?? "");
const { binaries, primary, settings, parent = tmpdir(), mayEnd = false, env } = options;
const owner = serverUser();
const directory = mkdtempSync(join(parent, "gatepost-postgresql-"));
const data = join(directory, "data");
const log: string[] = [];
let server: ChildProcess | undefined;
let ending = false;
let halting = false;

process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
process.stdin.on("end", end).on("error", end);
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
for await (const command of createInterface({ input: process.stdin })) {
  const isDone = command === "start" ? await listens(port) : await halt(command);
  process.stdout.write(isDone ? "done\n" : "failed\n");
}
await once(process, "exit");

async function halt(mode: string): Promise<boolean> {
  halting = true;
  if (server && server.exitCode === null && server.signalCode === null) {
    const gone = once(server, "exit");
    if (mode === "kill") killAll(server);
    else server.kill(mode === "fast" ? "SIGINT" : "SIGQUIT");
    await gone;
  }
  halting = false;
  return true;
}

/** All processes of the server at once, as where its machine is gone: none of them can say anything any more. */
function killAll(postmaster: ChildProcess): void {
  postmaster.kill("SIGSTOP");
  const children = execFileSync("pgrep", ["-P", String(postmaster.pid)], { encoding: "utf8" });
  postmaster.kill("SIGKILL");
  for (const pid of children.trim().split("\n")) {
    try {
      process.kill(Number(pid), "SIGKILL");
    } catch (error) {
      if (codeOf(error) !== "ESRCH") throw error;
    }
  }
}

/** PostgreSQL takes no port 0. */
async function start(): Promise<number | undefined> {
  if (options.port !== undefined) return (await listens(options.port)) ? options.port : undefined;
  for (let attempt = 0; attempt < 20 && !ending; attempt += 1) {
    const port = sparePort();
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
    { ...owner, cwd: directory, env: { ...environment(), ...env }, stdio: ["ignore", "ignore", "pipe"] },
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

/** The server has ended: because it was stopped, or by itself, which is a failure unless it may. */
function ended(): void {
  if (halting || (mayEnd && !ending)) return;
  if (!ending) process.stderr.write(`PostgreSQL ended by itself:\n${log.join("\n")}\n`);
  process.exit(ending ? 0 : 1);
}

/** A fast shutdown: transactions in progress are rolled back, connections closed. */
function end(): void {
  ending = true;
  const hasEnded = server?.exitCode !== null || server.signalCode !== null;
  if (server && hasEnded) process.exit(0);
  server?.kill("SIGINT");
}

/** Names and e-mail addresses are compared by the rules of UTF-8, as on a server that was set up for it. */
function environment(): NodeJS.ProcessEnv {
  return { ...process.env, LC_ALL: process.platform === "darwin" ? "en_US.UTF-8" : "C.UTF-8" };
}
