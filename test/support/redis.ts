/** Redis for tests: the server's program, on a port of its own, with nothing on disk. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { createClient } from "@redis/client";
import type { CacheSettings } from "../../src/platform/cache/cache-settings.ts";
import { exercised } from "./backends.ts";
import { localhostCertificate } from "./localhost-certificate.ts";
import { onSparePorts, sparePort } from "./spare-port.ts";

export interface Redis {
  readonly settings: CacheSettings;
  /** For a server of ours. */
  readonly env: Readonly<Record<"CACHE_HOST" | "CACHE_PORT", string>>;
  /** What an operator types. */
  command(...words: readonly string[]): Promise<unknown>;
  /** Stops its process where it stands, and lets it go on. */
  freeze(): void;
  thaw(): void;
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>;
  /** Starts it on its port, with nothing in it. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export interface RedisOptions {
  /** It serves TLS only, with the certificate for localhost. */
  readonly isSecure?: boolean;
  /** Of the default user; none unless given. */
  readonly password?: string;
}

/** Milliseconds for a response, where a test is not about them: also on a busy machine it comes sooner. */
export const patientMs = 30_000;

/** The program; undefined where this machine has none. */
export function findRedis(): string | undefined {
  return [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/opt/homebrew/bin"]
    .flatMap((directory) => [join(directory, "redis-server"), join(directory, "valkey-server")])
    .find((program) => existsSync(program));
}

export async function startRedis({ isSecure = false, password }: RedisOptions = {}): Promise<Redis> {
  const program = findRedis();
  if (program === undefined) throw new Error("redis-server is not on this machine.");
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const [cert, key] = [join(directory, "certificate.pem"), join(directory, "key.pem")];
  writeFileSync(cert, localhostCertificate.cert);
  writeFileSync(key, localhostCertificate.key);
  const certificate = ["--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no"];

  const start = (port: number) => {
    const at = isSecure
      ? ["--port", "0", "--tls-port", String(port), ...certificate]
      : ["--port", String(port)];
    const own = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", directory];
    const secret = password === undefined ? [] : ["--requirepass", password];
    return spawn(program, [...at, ...own, ...secret], { stdio: ["ignore", "pipe", "ignore"] });
  };
  let child: ChildProcess;
  await using starting = new AsyncDisposableStack();
  starting.defer(() => rmSync(directory, { recursive: true, force: true }));
  const port = await onSparePorts("Redis", async () => {
    const candidate = sparePort();
    child = start(candidate);
    return (await isReady(child)) ? candidate : undefined;
  });
  starting.defer(kill);
  const started = starting.move();
  exercised("Redis");

  const settings: CacheSettings = {
    host: isSecure ? "localhost" : "127.0.0.1",
    port,
    username: undefined,
    password,
    isSecure,
    ca: isSecure ? localhostCertificate.cert : undefined,
  };
  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  }
  return {
    settings,
    env: { CACHE_HOST: settings.host, CACHE_PORT: String(port) },
    async command(...words) {
      const { ca = "" } = settings;
      const client = createClient({
        socket: isSecure ? { host: "localhost", port, tls: true, ca } : { host: "127.0.0.1", port },
        ...(password !== undefined && { password }),
        RESP: 2,
      });
      await client.connect();
      try {
        return await client.sendCommand(words);
      } finally {
        client.destroy();
      }
    },
    freeze: () => void child.kill("SIGSTOP"),
    thaw: () => void child.kill("SIGCONT"),
    kill,
    async restart() {
      await kill();
      child = start(port);
      if (!(await isReady(child))) throw new Error("Redis did not start again.");
    },
    stop: () => started.disposeAsync(),
  };
}

/** @returns false if it ended before it listened, as its port was taken */
async function isReady(child: ChildProcess): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  if (!child.stdout) return false;
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (line.includes("Ready to accept connections")) resolve(true);
  });
  child.once("close", () => resolve(false));
  return promise;
}
