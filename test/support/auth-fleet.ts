/** One deployment of the auth service: servers that share a database, keys and an issuer. */
import { expect } from "vitest";
import { developmentClients } from "../../src/auth/client-settings.ts";
import type { Clock } from "../../src/platform/base/clock.ts";
import { type AuthApi, authApi } from "./auth-api.ts";
import { type AuthServer, spawnAuthServer, startAuthServer } from "./auth-server.ts";
import { type AuthStore, createAuthStore } from "./auth-store.ts";
import { readContract } from "./contract-check.ts";
import { type Backend, backends } from "./servers.ts";
import { waitFor } from "./wait-for.ts";

export interface Deployment {
  readonly name: string;
  readonly backend: Backend;
  readonly servers: number;
}

const all: readonly Deployment[] = [
  { name: "PGlite, one process", backend: "PGlite", servers: 1 },
  { name: "PostgreSQL, two processes", backend: "PostgreSQL", servers: 2 },
];
/** Deployments that can be tested here. */
export const deployments = all.filter(({ backend }) => backends.includes(backend));

/** An event as the log shows it. */
export interface LoggedEvent {
  readonly id: string;
  readonly type: string;
  readonly subject: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export interface AuthFleet {
  readonly store: AuthStore;
  readonly servers: readonly [AuthServer, ...AuthServer[]];
  readonly apis: readonly [AuthApi, ...AuthApi[]];
  /** The servers in turn, as a balancer hands out requests. */
  next(): AuthApi;
  /** Events that have been delivered, those of one identity if it is given. */
  events(identityId?: string): LoggedEvent[];
  /** Waits until the delivered events of the identity are of these types and no others; in whatever order. */
  delivered(identityId: string, types: readonly string[]): Promise<LoggedEvent[]>;
  /** Stops the servers, and drops the store if the fleet has made it. */
  stop(): Promise<void>;
}

interface FleetOptions {
  readonly env?: Record<string, string>;
  /** Given: the servers run in this process, by this clock. */
  readonly clock?: Clock;
  readonly store?: AuthStore;
}

/** `OAUTH_SERVER_CLIENTS` with the clients of development mode and these, which take the place of those of their ids. */
export function withClients(...clients: readonly object[]): Record<string, string> {
  const ids = new Set(clients.map((client) => Object(client).clientId));
  const others = developmentClients.filter(({ clientId }) => !ids.has(clientId));
  return { OAUTH_SERVER_CLIENTS: JSON.stringify([...others, ...clients]) };
}

/** The events in a log, whether its lines are JSON or for people. */
export function eventsIn(log: string): LoggedEvent[] {
  return log.split("\n").flatMap((line) => {
    if (!line.includes('"event":{')) return [];
    const json = line.startsWith("{") ? line : line.slice(line.indexOf('{"event":'));
    return [JSON.parse(json).event];
  });
}

export async function startFleet(
  { backend, servers: count }: Deployment,
  options: FleetOptions = {},
): Promise<AuthFleet> {
  const { clock } = options;
  await using cleanup = new AsyncDisposableStack();
  const store = options.store ?? (await createAuthStore(backend));
  if (!options.store) cleanup.defer(() => store.drop());
  const env = { ...store.env, ...options.env };
  async function start(): Promise<AuthServer> {
    const server = await (clock || backend === "PGlite"
      ? startAuthServer(backend, { env, ...(clock && { clock }) })
      : spawnAuthServer(backend, { env }));
    cleanup.defer(() => server.stop());
    return server;
  }
  // The first makes what the others share.
  const first = await start();
  const servers = [first, ...(await Promise.all(Array.from({ length: count - 1 }, start)))] as const;
  const contract = readContract("auth");
  const [api, ...others] = servers.map(({ base }) => authApi(base, contract));
  if (!api) throw new Error("a fleet has at least one server");
  const apis = [api, ...others] as const;
  const started = cleanup.move();
  let turn = 0;

  function events(identityId?: string): LoggedEvent[] {
    const found = servers.flatMap((server) => eventsIn(server.logs()));
    return identityId === undefined ? found : found.filter(({ subject }) => subject === identityId);
  }
  return {
    store,
    servers,
    apis,
    next() {
      turn += 1;
      return apis[turn % apis.length] ?? api;
    },
    events,
    async delivered(identityId, types) {
      await waitFor(() =>
        expect(
          events(identityId)
            .map(({ type }) => type)
            .sort(),
        ).toEqual([...types].sort()),
      );
      return events(identityId);
    },
    stop: () => started.disposeAsync(),
  };
}
