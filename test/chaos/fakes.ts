/** The fakes of the providers in a process of their own, over their control port. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Repeat } from "../../src/development/provider-fakes/ledger.ts";
import type { Scenario } from "../../src/development/provider-fakes/scenario.ts";
import type { PushSubscription } from "../../src/development/provider-fakes/webpush/subscriptions.ts";

export const providers = ["fcm", "apns", "webpush"] as const;
export type Provider = (typeof providers)[number];

/** What a fake accepted for one token. Times are milliseconds since the epoch. */
export interface LedgerEntry {
  readonly token: string;
  readonly count: number;
  readonly messages: readonly {
    readonly messageId: string;
    readonly collapseId: string | undefined;
    readonly count: number;
    readonly firstAt: number;
    readonly lastAt: number;
  }[];
}

export interface LedgerSummary {
  readonly messages: number;
  readonly repeats: number;
  readonly tokensNotifiedTwice: number;
  /** Most messages accepted within one second of the clock. */
  readonly peakPerSecond: number;
  readonly answers: Readonly<Record<string, number>>;
}

export interface Fakes {
  /** The settings that point a server at them. */
  readonly env: Readonly<Record<string, string>>;
  play(provider: Provider, scenario: Scenario): Promise<void>;
  /** Ends all scenarios. */
  calm(): Promise<void>;
  expireAccessTokens(): Promise<void>;
  subscribe(name: string): Promise<PushSubscription>;
  summary(): Promise<Readonly<Record<Provider, LedgerSummary>>>;
  /** All that a provider accepted, token by token. */
  entries(provider: Provider): AsyncGenerator<LedgerEntry>;
  /** The messages that arrived again. */
  repeats(provider: Provider): Promise<Repeat[]>;
  stop(): Promise<void>;
}

/** Entries that are read at once. */
const page = 2_000;

/** Starts `src/development/fakes.ts` on any free ports and waits for its first screen, which tells the settings. */
export async function startFakes(directory: string): Promise<Fakes> {
  const program = fileURLToPath(new URL("../../src/development/fakes.ts", import.meta.url));
  const ports = ["control", ...providers].flatMap((name) => [`--${name}-port`, "0"]);
  const child = spawn(
    process.execPath,
    ["--max-old-space-size=3072", program, ...ports, "--data", directory],
    { env: { PATH: process.env["PATH"] ?? "" }, stdio: ["ignore", "pipe", "inherit"] },
  );
  const gone = once(child, "exit");
  let screen = "";
  for await (const text of child.stdout.setEncoding("utf8")) {
    screen += text;
    if (screen.includes("Stop with")) break;
  }
  const control = /Control\s+(\S+)/.exec(screen)?.[1];
  if (control === undefined) throw new Error(`the fakes did not start:\n${screen}`);

  async function call(method: string, path: string, body?: object): Promise<string> {
    const response = await fetch(`${control}${path}`, {
      method,
      // The other side closes a connection that was idle for five seconds, maybe just when it is used again.
      headers: { connection: "close" },
      ...(body && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text;
  }
  async function json<T>(method: string, path: string, body?: object): Promise<T> {
    const value: T = JSON.parse(await call(method, path, body));
    return value;
  }

  async function lines<T>(path: string): Promise<T[]> {
    const text = await call("GET", path);
    return text
      .split("\n")
      .filter((line) => line !== "")
      .map((line): T => JSON.parse(line));
  }

  return {
    env: Object.fromEntries(
      [...screen.matchAll(/^export ([A-Z_]+)=(.+)$/gm)].map(([, name = "", value = ""]) => [name, value]),
    ),
    async play(provider, scenario) {
      await call("POST", `/play?provider=${provider}`, scenario);
    },
    async calm() {
      await call("DELETE", "/play");
    },
    async expireAccessTokens() {
      await call("POST", "/fcm/expire-access-tokens");
    },
    subscribe: (name) => json("POST", "/webpush/subscriptions", { name }),
    summary: () => json("GET", "/ledger"),
    async *entries(provider) {
      for (let after = ""; ; ) {
        const query = `provider=${provider}&limit=${page}&after=${encodeURIComponent(after)}`;
        const entries = await lines<LedgerEntry>(`/ledger/tokens?${query}`);
        if (entries.length === 0) return;
        yield* entries;
        after = entries.at(-1)?.token ?? "";
      }
    },
    repeats: (provider) => lines(`/ledger/repeats?provider=${provider}`),
    async stop() {
      if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
      await gone;
    },
  };
}
