/** The auth service for tests, alone in a server: in this process or in one of its own. */
import type { AuthSettings } from "../../src/auth/settings.ts";
import {
  type Backend,
  type OwnServerOptions,
  type Server,
  type ServerOptions,
  type ServerProcess,
  spawnServer,
  startOwnServer,
} from "./servers.ts";

interface AuthAddress {
  /** The origin with /api/auth. */
  readonly base: string;
  readonly settings: AuthSettings;
}

/** A server that answers. */
export type AuthServer = Omit<Server, "settings"> & AuthAddress;

/** A server in a process of its own, which can be killed. */
export type AuthProcess = Omit<ServerProcess, "settings"> & AuthAddress;

function addressOf({ origin, settings: { auth } }: Server): AuthAddress {
  if (!auth) throw new Error("the server runs no auth service");
  return { base: `${origin}/api/auth`, settings: auth };
}

/** Starts the server in this process. */
export async function startAuthServer(backend: Backend, options: OwnServerOptions = {}): Promise<AuthServer> {
  const server = await startOwnServer(backend, { ...options, env: { SERVICES: "auth", ...options.env } });
  return { ...server, ...addressOf(server) };
}

/** Starts it in a process of its own and waits until it is ready. */
export async function spawnAuthServer(backend: Backend, options: ServerOptions = {}): Promise<AuthProcess> {
  const server = await spawnServer(backend, { ...options, env: { SERVICES: "auth", ...options.env } });
  return { ...server, ...addressOf(server) };
}
