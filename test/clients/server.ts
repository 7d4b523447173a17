/** The server that the clients talk to: the whole program in development mode, on ports and data of its own. */
import { generateKeyPairSync } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { type JWTPayload, SignJWT } from "jose";
import { developmentClients } from "../../src/auth/client-settings.ts";
import { startNode } from "../support/program.ts";
import { type Ports, portsIn } from "../support/servers.ts";

/** A client that acts for no user, with the audience of resource servers. */
const jobs = {
  ...{ clientId: "jobs", clientSecret: "jobs-dev-secret", grantTypes: ["client_credentials"] },
  ...{ scopes: ["orders"], clientSettings: { audiences: ["storefront"] } },
};

export interface ClientServer {
  readonly authUrl: string;
  readonly pushUrl: string;
  readonly grpcAddress: string;
  readonly pid: number;
  /** The folder with the documents as the server serves them. */
  readonly documents: string;
  /**
   * Signs with the server's own key what the server itself would never issue, such as an expired token.
   * @param type the header's `typ`
   */
  signToken(payload: JWTPayload, type: string): Promise<string>;
  /** How many requests and calls it has told to come again, by its own metrics: 503, UNAVAILABLE. */
  unavailable(): Promise<number>;
  /** Ends it, unless it has ended, and removes its data. */
  stop(): Promise<void>;
}

/** @throws with what the server wrote if it does not become ready within two minutes */
export async function startClientServer(): Promise<ClientServer> {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-clients-"));
  const keyId = "clients";
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const program = startNode("src/start.js", {
    RSA_PRIVATE_KEY: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    RSA_PUBLIC_KEY: publicKey.export({ type: "spki", format: "pem" }).toString(),
    RSA_KEY_ID: keyId,
    OAUTH_SERVER_CLIENTS: JSON.stringify([...developmentClients, jobs]),
    DATA_DIR: join(directory, "data"),
    // Generated requests are all of one user.
    PUSH_MAX_SAVES_PER_MINUTE: "1000000",
    SERVER_PORT: "0",
    GRPC_PORT: "0",
    MANAGEMENT_PORT: "0",
  });
  const stop = async () => {
    program.child.kill("SIGTERM");
    await program.ended();
    rmSync(directory, { recursive: true, force: true });
  };
  try {
    const ports = await becomesReady(program);
    const origin = `http://127.0.0.1:${ports.http}`;
    const authUrl = `${origin}/api/auth`;
    const pushUrl = `${origin}/api/push-orchestration`;
    const documents = join(directory, "documents");
    mkdirSync(documents);
    for (const extension of ["yaml", "json"]) {
      await download(`${authUrl}/openapi.${extension}`, join(documents, `auth.${extension}`));
      await download(`${pushUrl}/openapi.${extension}`, join(documents, `push.${extension}`));
    }
    return {
      authUrl,
      pushUrl,
      grpcAddress: `127.0.0.1:${ports.grpc}`,
      pid: program.child.pid ?? Number.NaN,
      documents,
      signToken: (payload, typ) =>
        new SignJWT(payload).setProtectedHeader({ alg: "RS256", typ, kid: keyId }).sign(privateKey),
      unavailable: () => countUnavailable(`http://127.0.0.1:${ports.management}/metrics`),
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

/**
 * For a program that ends a server during its calls: starts a further one, and ends it if the program has not.
 * @param run runs the program with this in its environment
 */
export async function withDrainingServer(
  run: (env: Readonly<Record<string, string>>) => Promise<unknown>,
): Promise<void> {
  const server = await startClientServer();
  try {
    await run({ GATEPOST_DRAINING_GRPC: server.grpcAddress, GATEPOST_DRAINING_PID: String(server.pid) });
  } finally {
    await server.stop();
  }
}

async function becomesReady(program: ReturnType<typeof startNode>): Promise<Ports> {
  const deadline = Date.now() + 120_000;
  while (program.child.exitCode === null && Date.now() < deadline) {
    const ports = portsIn(program.output());
    const response =
      ports && (await fetch(`http://127.0.0.1:${ports.management}/health/ready`).catch(() => undefined));
    if (ports && response?.ok) return ports;
    await setTimeout(50);
  }
  throw new Error(`the server is not ready:\n${program.output()}`);
}

/** What was refused before it was a request or a call is a metric of its own. */
async function countUnavailable(metrics: string): Promise<number> {
  const text = await (await fetch(metrics)).text();
  const counts = text.matchAll(
    /^gatepost_(?:(?:http_request|rpc)_duration_seconds_count\{.*(?:status="503"|code="unavailable").*\}|requests_shed_total\{.*\}) (\d+)$/gm,
  );
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

async function download(url: string, file: string): Promise<void> {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`GET ${url} was answered with ${response.status}`);
  writeFileSync(file, await response.text());
}
