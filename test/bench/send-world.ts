/** What a send is measured with besides the services: the fakes in a process of their own, and a caller's token. */
import { spawn } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Scenario } from "../../src/development/provider-fakes/scenario.ts";
import { type BenchServer, startBenchServer } from "./processes.ts";

const ports = { control: 22_020, fcm: 22_021, apns: 22_022, webpush: 22_023 };

/** What FCM accepted. The times are milliseconds since the epoch; null as long as there is no message. */
export interface FcmLedger {
  readonly tokens: number;
  readonly messages: number;
  readonly repeats: number;
  readonly firstAt: number | null;
  readonly lastAt: number | null;
}

/** What FCM accepted for a token; the times are those of the {@link FcmLedger}. */
interface FcmToken {
  readonly token: string;
  readonly count: number;
  readonly messages: readonly { readonly firstAt: number }[];
}

/** The fakes' answer, of which only FCM is of interest here. */
interface Ledgers {
  readonly fcm: FcmLedger;
}

export interface Fakes {
  /** The settings that point a server at them. */
  readonly env: Record<string, string>;
  /** What FCM accepted. */
  summary(): Promise<FcmLedger>;
  /** The same; strangers are tokens that nobody should have reached. */
  ledger(): Promise<FcmLedger & { readonly strangers: number }>;
  /** What FCM accepted, token by token. */
  tokens(): AsyncGenerator<FcmToken>;
  /** Has FCM play a scenario. */
  play(scenario: Scenario): Promise<void>;
  /** Ends all scenarios and empties the ledger. */
  clear(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts `src/development/fakes.ts` and waits for its first screen, which tells the settings. */
export async function startFakes(directory: string): Promise<Fakes> {
  const program = fileURLToPath(new URL("../../src/development/fakes.ts", import.meta.url));
  const flags = Object.entries(ports).flatMap(([name, port]) => [`--${name}-port`, `${port}`]);
  const child = spawn(process.execPath, [program, ...flags, "--data", directory], {
    env: { PATH: process.env["PATH"] ?? "" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const gone = once(child, "exit");
  let screen = "";
  for await (const text of child.stdout.setEncoding("utf8")) {
    screen += text;
    if (screen.includes("Stop with")) break;
  }
  const env = Object.fromEntries(
    [...screen.matchAll(/^export ([A-Z_]+)=(.+)$/gm)].map(([, name = "", value = ""]) => [name, value]),
  );
  const control = `http://127.0.0.1:${ports.control}`;
  async function call(method: string, path: string, body?: object): Promise<string> {
    const response = await fetch(`${control}${path}`, {
      method,
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text;
  }
  async function summary(): Promise<FcmLedger> {
    const { fcm }: Ledgers = JSON.parse(await call("GET", "/ledger"));
    return fcm;
  }
  return {
    env,
    summary,
    ledger: async () => ({ ...(await summary()), strangers: await countStrangers(control) }),
    tokens: () => tokensAt(control),
    async play(scenario) {
      await call("POST", "/play?provider=fcm", scenario);
    },
    async clear() {
      await call("DELETE", "/play");
      await call("DELETE", "/ledger");
    },
    async stop() {
      child.kill("SIGTERM");
      await gone;
    },
  };
}

async function* tokensAt(control: string): AsyncGenerator<FcmToken> {
  for (let after = ""; ; ) {
    const page = await fetch(
      `${control}/ledger/tokens?provider=fcm&limit=10000&after=${encodeURIComponent(after)}`,
    );
    const lines = (await page.text()).split("\n").filter((line) => line !== "");
    const entries = lines.map((line): FcmToken => JSON.parse(line));
    yield* entries;
    const last = entries.at(-1);
    if (!last) return;
    after = last.token;
  }
}

async function countStrangers(control: string): Promise<number> {
  let strangers = 0;
  for await (const { token } of tokensAt(control)) if (!token.startsWith("device-")) strangers += 1;
  return strangers;
}

/** An access token of the back office, issued by the password grant to an identity made for it. */
export async function backofficeToken(auth: string): Promise<string> {
  const basic = (id: string, secret: string) => `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
  const internal = {
    Authorization: basic("internal", "internal-dev-secret"),
    "Content-Type": "application/json",
  };
  const id = `operator-${randomUUID()}`;
  const password = randomUUID();
  const call = async (method: string, path: string, headers: Record<string, string>, body: string) => {
    const response = await fetch(`${auth}${path}`, { method, headers, body });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response;
  };
  await call(
    "POST",
    "/v1/identities",
    internal,
    JSON.stringify({ id, phone: `+1415${randomInt(2_000_000, 9_000_000)}` }),
  );
  await call("PUT", `/v1/identities/${id}/password`, internal, JSON.stringify({ password }));
  const response = await call(
    "POST",
    "/oauth2/v1/tokens",
    {
      Authorization: basic("backoffice", "backoffice-dev-secret"),
      "Content-Type": "application/x-www-form-urlencoded",
    },
    new URLSearchParams({ grant_type: "password", username: id, password }).toString(),
  );
  const { access_token }: { access_token: string } = JSON.parse(await response.text());
  return access_token;
}

/** The ports of the services of a send. */
export const servicePorts = {
  auth: 22_030,
  authGrpc: 22_032,
  authManagement: 22_031,
  push: 22_033,
  pushGrpc: 22_034,
  pushManagement: 22_035,
};

/** Where the calls of an operator begin. */
export const pushBase = `http://127.0.0.1:${servicePorts.push}/api/push-orchestration/v1/pushprovider`;

interface Progress {
  readonly state: string;
  readonly planned: number;
  readonly sent: number;
  readonly failed: number;
  readonly dropped: number;
  readonly remaining: number;
  readonly deadLettered: number;
  readonly recipients: number;
}

/** The progress of a notification. @throws if it does not add up */
export async function progressOf(token: string, id: string): Promise<Progress> {
  const response = await fetch(`${pushBase}/notifications/${id}`, {
    headers: { Authorization: `Bearer ${token}` },
  });
  if (!response.ok) throw new Error(`progress: ${response.status} ${await response.text()}`);
  const progress: Progress = JSON.parse(await response.text());
  const { planned, sent, failed, dropped, deadLettered, remaining } = progress;
  if (planned !== sent + failed + dropped + deadLettered + remaining) {
    throw new Error(`progress does not add up: ${JSON.stringify(progress)}`);
  }
  return progress;
}

/**
 * Starts auth and push, a process each, on the database of the environment, which is migrated by that.
 * @param program their `start.js`
 * @param provider what points push at its providers, with `PUSH_PROVIDERS`
 */
export async function startServices(
  program: string,
  environment: Record<string, string>,
  provider: Record<string, string>,
): Promise<{ auth: BenchServer; push: BenchServer }> {
  const ports = servicePorts;
  const start = (service: string, [http, grpc, management]: readonly [number, number, number], env = {}) =>
    startBenchServer(
      program,
      [],
      {
        ...environment,
        ...(service === "push" && process.env["PUSH_NODE_OPTIONS"]
          ? { NODE_OPTIONS: process.env["PUSH_NODE_OPTIONS"] }
          : {}),
        SERVICES: service,
        SERVER_PORT: `${http}`,
        GRPC_PORT: `${grpc}`,
        MANAGEMENT_PORT: `${management}`,
        LOGGING_LEVEL: "warn",
        ...env,
      },
      async () => (await fetch(`http://127.0.0.1:${management}/health/ready`)).ok,
      "any",
    );
  const auth = await start("auth", [ports.auth, ports.authGrpc, ports.authManagement]);
  const push = await start("push", [ports.push, ports.pushGrpc, ports.pushManagement], {
    PUSH_MAX_PER_SECOND: "0",
    IDENTITY_PROVIDER_ISSUER_URI: `http://127.0.0.1:${ports.auth}/api/auth`,
    PLATFORM_SECURITY_URL: `http://127.0.0.1:${ports.authGrpc}`,
    ...provider,
  });
  return { auth, push };
}
