/** HAProxy with the configuration of deploy/, before servers of this machine whose ports change when they start again. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { setTimeout as pause } from "node:timers/promises";
import { exercised } from "./backends.ts";
import { root } from "./program.ts";
import type { Server } from "./servers.ts";
import { onSparePorts, sparePort } from "./spare-port.ts";

/** Where a server is. */
type Address = Pick<Server, "origin" | "grpc" | "management">;

/** Whose requests go to a server: those of one of the two services. */
export type Service = "auth" | "push";

export interface Haproxy {
  /** http://127.0.0.1:port, of HTTP, Connect and gRPC-Web. */
  readonly origin: string;
  /** 127.0.0.1:port, of native gRPC. */
  readonly grpc: string;
  /**
   * Sends requests for the service to a server that is ready, and resolves once it does.
   * @param place 1 or 2: which of the service's servers it is
   */
  add(service: Service, place: number, server: Address): Promise<void>;
  /** Forgets the server of that place, which has ended. */
  remove(service: Service, place: number): Promise<void>;
  stop(): Promise<void>;
}

/** Milliseconds that it may take to find a server ready, however busy the machine is. */
const patienceMs = 60_000;

/** The configuration that is shipped. */
export const haproxyConfiguration = join(root, "deploy/haproxy.cfg");

/** The program; undefined where this machine has none. */
export function findHaproxy(): string | undefined {
  return [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/opt/homebrew/bin"]
    .map((directory) => join(directory, "haproxy"))
    .find((program) => existsSync(program));
}

/** What a test changes in the configuration: a pattern that has to be in it, and what takes its place. */
type Change = readonly [from: RegExp | string, to: string];

/** The shipped configuration with ports of this machine, and servers that are named later. */
function configuration(http: number, grpc: number, socket: string, own: readonly Change[]): string {
  const changes: readonly Change[] = [
    [/^global$/m, `global\n    stats socket ${socket} level admin`],
    [/^resolvers docker\n( {4}.*\n)+/m, ""],
    [" resolvers docker init-addr none", " disabled"],
    [/^ {4}bind :8080$/m, `    bind 127.0.0.1:${http}`],
    [/^ {4}bind :9090 /m, `    bind 127.0.0.1:${grpc} `],
    [/(server-template \w+ 2) \w+:\d+/g, "$1 127.0.0.1:1"],
    // The built-in verifier of one-time codes has them in memory.
    [
      /^backend auth_http$/m,
      "backend auth_http\n    use-server auth1 if { path_beg /otp-verifier /api/auth/oauth2/v1/authorize-challenge }",
    ],
    ...own,
  ];
  return changes.reduce(
    (config, [from, to]) => {
      const changed = config.replace(from, to);
      if (changed === config) throw new Error(`deploy/haproxy.cfg has no ${from}`);
      return changed;
    },
    readFileSync(haproxyConfiguration, "utf8"),
  );
}

/** Starts it on any free ports. */
export async function startHaproxy(...changes: readonly Change[]): Promise<Haproxy> {
  const program = findHaproxy();
  if (program === undefined) throw new Error("HAProxy is not on this machine.");
  const directory = mkdtempSync(join(tmpdir(), "haproxy-"));
  const [file, socket] = [join(directory, "haproxy.cfg"), join(directory, "admin.sock")];
  const state = (backend: string, name: string) => stateOf(socket, backend, name);
  let child: ChildProcess | undefined;
  await using starting = new AsyncDisposableStack();
  starting.defer(async () => {
    if (child) await ended(child);
    rmSync(directory, { recursive: true, force: true });
  });
  const [http, grpc] = await onSparePorts("HAProxy", async () => {
    const ports = [sparePort(), sparePort()] as const;
    writeFileSync(file, configuration(...ports, socket, changes));
    child = spawn(program, ["-db", "-f", file], { stdio: ["ignore", "ignore", "pipe"] });
    return (await listens(child, socket)) ? ports : undefined;
  });
  const started = starting.move();
  exercised("HAProxy");
  return {
    origin: `http://127.0.0.1:${http}`,
    grpc: `127.0.0.1:${grpc}`,
    async add(service, place, { origin, grpc: rpc, management }) {
      const checked = new URL(management).port;
      const ports = { http: new URL(origin).port, grpc: new URL(`http://${rpc}`).port };
      for (const [kind, port] of Object.entries(ports)) {
        const server = `${service}_${kind}/${service}${place}`;
        await command(socket, `set server ${server} addr 127.0.0.1 port ${port}`);
        await command(socket, `set server ${server} check-port ${checked}`);
        await command(socket, `set server ${server} state ready`);
      }
      for (const kind of Object.keys(ports)) {
        const [backend, name] = [`${service}_${kind}`, `${service}${place}`];
        await eventually(async () => (await state(backend, name)) === "UP", `${name} is not up`);
      }
    },
    async remove(service, place) {
      for (const kind of ["http", "grpc"])
        await command(socket, `set server ${service}_${kind}/${service}${place} state maint`);
    },
    stop: () => started.disposeAsync(),
  };
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill("SIGTERM");
  await gone;
}

async function eventually(check: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await check())) {
    if (performance.now() > deadline) throw new Error(`HAProxy: ${what}.`);
    await pause(50);
  }
}

/** @returns false if a port was taken @throws where it ended for another reason */
async function listens(child: ChildProcess, socket: string): Promise<boolean> {
  const lines: string[] = [];
  if (child.stderr) createInterface({ input: child.stderr }).on("line", (line) => lines.push(line));
  const closed = once(child, "close");
  const isUp = () => command(socket, "show info").then((info) => info.includes("Name: HAProxy"));
  await eventually(
    async () => child.exitCode !== null || (await isUp().catch(() => false)),
    "it does not listen",
  );
  if (child.exitCode === null) return true;
  await closed;
  if (lines.some((line) => /cannot bind|in use/i.test(line))) return false;
  throw new Error(`HAProxy ended:\n${lines.join("\n")}`);
}

/** A command of its runtime API. @returns the answer, without the empty lines at its end */
async function command(socket: string, line: string): Promise<string> {
  const connection = connect(socket);
  connection.end(`${line}\n`);
  return (await text(connection)).trimEnd();
}

/** As its statistics have it, such as UP, DOWN or MAINT. */
async function stateOf(socket: string, backend: string, name: string): Promise<string> {
  const [header = "", ...rows] = (await command(socket, "show stat")).split("\n");
  const column = header.split(",").indexOf("status");
  const row = rows.map((line) => line.split(",")).find(([of, own]) => of === backend && own === name);
  return row?.[column] ?? "unknown";
}
