/** NATS with JetStream for tests: the server's program, on any free port, with a disk of its own. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import { exercised } from "./backends.ts";
import { localhostCertificate } from "./localhost-certificate.ts";
import { onSparePorts, sparePort } from "./spare-port.ts";

export interface Nats {
  /** nats://127.0.0.1:port, or tls://localhost:port; the same after each start. */
  readonly url: string;
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>;
  /** Starts it again on its port. @param disk whether it finds what it had kept */
  restart(disk: "kept" | "lost"): Promise<void>;
  stop(): Promise<void>;
}

export interface NatsOptions {
  /** It serves TLS only, with the certificate for localhost. */
  readonly isSecure?: boolean;
  /** Who may sign in; anybody unless given. */
  readonly users?: readonly { readonly user: string; readonly password: string }[];
}

/** The program; undefined where this machine has none. */
export function findNats(): string | undefined {
  return [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/opt/homebrew/bin"]
    .map((directory) => join(directory, "nats-server"))
    .find((program) => existsSync(program));
}

export function startNats(options: NatsOptions = {}): Promise<Nats> {
  return onSparePorts("NATS", () => startMember(options));
}

/** Three servers that keep together what they are told, each with a URL of its own. */
export function startNatsCluster(): Promise<readonly [Nats, Nats, Nats]> {
  return onSparePorts("The NATS cluster", async () => {
    // They have to know each other's ports before they start.
    const routes = [0, 1, 2].map(() => `nats://127.0.0.1:${sparePort()}`);
    const tried = await Promise.allSettled(
      routes.map((route, index) =>
        startMember({}, [
          ...["--name", `nats-${index + 1}`, "--cluster_name", "gatepost"],
          ...["--cluster", route, "--routes", routes.join(",")],
        ]),
      ),
    );
    const started = tried.map((one) => (one.status === "fulfilled" ? one.value : undefined));
    const [first, second, third] = started;
    if (first && second && third) return [first, second, third] as const;
    await Promise.all(started.map((server) => server?.stop()));
    for (const one of tried) if (one.status === "rejected") throw one.reason;
    return undefined;
  });
}

/** @param ofCluster options of the program, beside those of a server alone @returns undefined where a port is taken */
async function startMember(
  { isSecure = false, users }: NatsOptions,
  ofCluster: readonly string[] = [],
): Promise<Nats | undefined> {
  const program = findNats();
  if (program === undefined)
    throw new Error("nats-server is not on this machine. Debian: apt-get install nats-server");
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const disk = join(directory, "disk");
  const options = ["--addr", "127.0.0.1", "--jetstream", "--store_dir", disk, ...ofCluster];
  if (users) {
    const configuration = join(directory, "nats.conf");
    writeFileSync(configuration, JSON.stringify({ authorization: { users } }));
    options.push("--config", configuration);
  }
  if (isSecure) {
    const [certificate, key] = [join(directory, "certificate.pem"), join(directory, "key.pem")];
    writeFileSync(certificate, localhostCertificate.cert);
    writeFileSync(key, localhostCertificate.key);
    options.push("--tls", "--tlscert", certificate, "--tlskey", key);
  }
  let child: ChildProcess;
  const port = sparePort();
  async function start(): Promise<void> {
    child = spawn(program ?? "", [...options, "--port", String(port)], {
      stdio: ["ignore", "ignore", "pipe"],
    });
    await untilReady(child, ofCluster.length > 0);
  }
  async function kill(): Promise<void> {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, "exit");
    child.kill("SIGKILL");
    await gone;
  }
  async function stop(): Promise<void> {
    await kill();
    rmSync(directory, { recursive: true, force: true });
  }
  try {
    await start();
  } catch (error) {
    await stop();
    if (String(error).includes("address already in use")) return undefined;
    throw error;
  }
  exercised("NATS");
  return {
    url: isSecure ? `tls://localhost:${port}` : `nats://127.0.0.1:${port}`,
    kill,
    async restart(kept) {
      await kill();
      if (kept === "lost") rmSync(disk, { recursive: true, force: true });
      await start();
    },
    stop,
  };
}

/**
 * Waits until the server is ready; one of a cluster says so before it listens for the others, and ends if it cannot.
 * @throws Error with what it said, where it ends before
 */
async function untilReady(child: ChildProcess, isOfCluster: boolean): Promise<void> {
  const awaited = isOfCluster ? /Listening for route connections on \S+$/ : /Server is ready$/;
  const lines: string[] = [];
  if (!child.stderr) throw new Error("nats-server has no output");
  for await (const line of createInterface({ input: child.stderr })) {
    lines.push(line);
    if (awaited.test(line)) {
      child.stderr.resume();
      return;
    }
  }
  throw new Error(`nats-server did not start:\n${lines.join("\n")}`);
}
