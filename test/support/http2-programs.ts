/** Servers of HTTP/2 by others, as programs: nghttp2's, and one written in Go with its standard library. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { exercised } from "./backends.ts";
import { localhostCertificate } from "./localhost-certificate.ts";
import { root } from "./program.ts";
import { onSparePorts, sparePort } from "./spare-port.ts";

/** A server with the certificate for localhost. */
export interface Http2Program {
  readonly origin: string;
  stop(): Promise<void>;
}

function find(name: string, ...others: readonly string[]): string | undefined {
  return [...(process.env["PATH"] ?? "").split(delimiter), ...others]
    .map((directory) => join(directory, name))
    .find((program) => existsSync(program));
}

/** The programs; undefined where this machine has none. */
export const findNghttpd = () => find("nghttpd", "/usr/sbin", "/opt/homebrew/bin");
export const findGo = () => find("go", "/usr/local/go/bin", "/opt/homebrew/bin");

function certificateIn(directory: string): readonly [certificate: string, key: string] {
  const [certificate, key] = [join(directory, "certificate.pem"), join(directory, "key.pem")];
  writeFileSync(certificate, localhostCertificate.cert);
  writeFileSync(key, localhostCertificate.key);
  return [certificate, key];
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, "exit");
  child.kill("SIGKILL");
  await gone;
}

/** Starts nghttp2's server, which sends back what it is sent. @param options as `nghttpd --help` has them */
export async function startNghttpd(options: readonly string[]): Promise<Http2Program> {
  const program = findNghttpd();
  if (program === undefined) throw new Error("nghttpd is not on this machine.");
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const [certificate, key] = certificateIn(directory);
  const fixed = ["--address=127.0.0.1", `--htdocs=${directory}`, "--echo-upload"];
  let child: ChildProcess | undefined;
  await using starting = new AsyncDisposableStack();
  starting.defer(async () => {
    if (child) await end(child);
    rmSync(directory, { recursive: true, force: true });
  });
  const port = await onSparePorts("nghttpd", async () => {
    const candidate = sparePort();
    child = spawn(program, [...fixed, ...options, String(candidate), key, certificate], { stdio: "ignore" });
    return (await listens(child, candidate)) ? candidate : undefined;
  });
  const started = starting.move();
  exercised("nghttp2");
  return { origin: `https://localhost:${port}`, stop: () => started.disposeAsync() };
}

/** @returns false if it ended before it listened */
async function listens(child: ChildProcess, port: number): Promise<boolean> {
  const gone = once(child, "exit").then(() => false);
  while (child.exitCode === null && child.signalCode === null) {
    const socket = connect(port, "127.0.0.1");
    const isUp = await Promise.race([
      once(socket, "connect").then(
        () => true,
        () => false,
      ),
      gone,
    ]);
    socket.destroy();
    // Another process may have the port: then this one ends at once.
    await setTimeout(20);
    if (isUp) return child.exitCode === null;
  }
  return false;
}

/** Builds and starts `test/platform/http2/go-server/`. */
export async function startGoServer(): Promise<Http2Program> {
  const go = findGo();
  if (go === undefined) throw new Error("Go is not on this machine.");
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const program = join(directory, "server");
  execFileSync(go, ["build", "-o", program, join(root, "test/platform/http2/go-server/main.go")], {
    env: { ...process.env, CGO_ENABLED: "0", GOTOOLCHAIN: "local" },
    stdio: ["ignore", "ignore", "inherit"],
  });
  const child = spawn(program, certificateIn(directory), { stdio: ["pipe", "pipe", "ignore"] });
  const [line] = await once(child.stdout.setEncoding("utf8"), "data");
  exercised("Go's net/http");
  return {
    origin: `https://localhost:${String(line).trim()}`,
    async stop() {
      await end(child);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
