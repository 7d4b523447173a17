/** PgBouncer in transaction mode, before the PostgreSQL of the tests. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chownSync, existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { exercised, type TestDatabase } from "./backends.ts";
import { serverUser } from "./postgresql/binaries.ts";
import { onSparePorts, sparePort } from "./spare-port.ts";

export interface PgBouncer {
  readonly port: number;
  stop(): Promise<void>;
}

/** The program; undefined where this machine has none. */
export function findPgbouncer(): string | undefined {
  return [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/opt/homebrew/bin"]
    .map((directory) => join(directory, "pgbouncer"))
    .find((program) => existsSync(program));
}

/** @param serverConnections to PostgreSQL, at most */
export async function startPgbouncer(database: TestDatabase, serverConnections: number): Promise<PgBouncer> {
  const program = findPgbouncer();
  if (program === undefined) throw new Error("PgBouncer is not on this machine.");
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const owner = serverUser();
  const users = join(directory, "users.txt");
  writeFileSync(users, `"${database.user}" "${database.password}"\n`);
  let child: ChildProcess | undefined;
  await using starting = new AsyncDisposableStack();
  starting.defer(async () => {
    if (child && child.exitCode === null && child.signalCode === null) {
      const gone = once(child, "exit");
      child.kill("SIGTERM");
      child.kill("SIGINT");
      await gone;
    }
    rmSync(directory, { recursive: true, force: true });
  });
  const port = await onSparePorts("PgBouncer", async () => {
    const candidate = sparePort();
    const settings = join(directory, "pgbouncer.ini");
    writeFileSync(
      settings,
      [
        "[databases]",
        `* = host=${database.host} port=${database.port}`,
        "[pgbouncer]",
        "pool_mode = transaction",
        `default_pool_size = ${serverConnections}`,
        "listen_addr = 127.0.0.1",
        `listen_port = ${candidate}`,
        "unix_socket_dir =",
        "auth_type = plain",
        `auth_file = ${users}`,
      ].join("\n"),
    );
    if (owner) for (const path of [directory, users, settings]) chownSync(path, owner.uid, owner.gid);
    child = spawn(program, [settings], { ...owner, cwd: directory, stdio: ["ignore", "ignore", "pipe"] });
    return (await listens(child)) ? candidate : undefined;
  });
  const started = starting.move();
  exercised("PgBouncer");
  return { port, stop: () => started.disposeAsync() };
}

/** @returns false if it ended before it listened */
async function listens(child: ChildProcess): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  if (!child.stderr) return false;
  createInterface({ input: child.stderr }).on("line", (line) => {
    if (line.includes("process up")) resolve(true);
  });
  child.once("close", () => resolve(false));
  return promise;
}
