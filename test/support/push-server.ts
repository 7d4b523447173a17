/**
 * The push service for tests, in one server with the auth service that its callers' tokens are from: in this
 * process or in one of its own.
 */
import { randomUUID } from "node:crypto";
import { backoffice, internal, mobileApp, newPhone } from "./auth-api.ts";
import type { AuthServer } from "./auth-server.ts";
import {
  type Backend,
  type OwnServerOptions,
  type Server,
  type ServerOptions,
  type ServerProcess,
  spawnServer,
  startOwnServer,
} from "./servers.ts";

/** What of it a test needs to know. */
export interface PushAddress {
  /** The origin with /api/push-orchestration. */
  readonly base: string;
  /** The origin with /api/auth. */
  readonly authBase: string;
  /** A new access token of the users' application; the identity is created unless it is there. */
  userToken(identityId?: string): Promise<string>;
  /** A new access token of the back office. */
  backofficeToken(): Promise<string>;
  /** Deletes the identity in the auth service. */
  deleteIdentity(identityId: string): Promise<void>;
}

export type PushServer = Server & PushAddress;
export type PushProcess = ServerProcess & PushAddress;

/** Starts the server in this process. */
export async function startPushServer(backend: Backend, options: OwnServerOptions = {}): Promise<PushServer> {
  const server = await startOwnServer(backend, options);
  return { ...server, ...addressOf(server.origin) };
}

/** Starts the push service alone, beside a server that runs the auth service. */
export async function startPushApart(
  backend: Backend,
  auth: Pick<AuthServer, "origin" | "grpc" | "settings">,
  options: OwnServerOptions = {},
): Promise<PushServer> {
  const env = {
    SERVICES: "push",
    IDENTITY_PROVIDER_ISSUER_URI: auth.settings.issuer,
    PLATFORM_SECURITY_URL: `http://${auth.grpc}`,
    PLATFORM_SECURITY_API_KEY: auth.settings.platformSecurityApiKeys[0] ?? "",
    ...options.env,
  };
  const server = await startOwnServer(backend, { ...options, env });
  return { ...server, ...addressOf(server.origin, auth.origin) };
}

/** Starts it in a process of its own and waits until it is ready. */
export async function spawnPushServer(backend: Backend, options: ServerOptions = {}): Promise<PushProcess> {
  const server = await spawnServer(backend, options);
  return { ...server, ...addressOf(server.origin) };
}

/**
 * The tokens that an auth service issues for a push service.
 * @param origin of the push service
 * @param authOrigin of the auth service; the same server unless given
 */
export function addressOf(origin: string, authOrigin = origin): PushAddress {
  const authBase = `${authOrigin}/api/auth`;

  async function call(method: string, path: string, as: string, body?: object | URLSearchParams) {
    const isForm = body instanceof URLSearchParams;
    const response = await fetch(`${authBase}${path}`, {
      method,
      headers: {
        authorization: as,
        ...(body && !isForm && { "content-type": "application/json" }),
      },
      ...(body && { body: isForm ? body : JSON.stringify(body) }),
    });
    return { status: response.status, text: await response.text() };
  }

  async function expectStatus(
    statuses: readonly number[],
    answer: Promise<{ status: number; text: string }>,
  ) {
    const { status, text } = await answer;
    if (!statuses.includes(status)) throw new Error(`the auth service answered ${status}: ${text}`);
    return text;
  }

  const newIdentity = (id: string, statuses: readonly number[]) =>
    expectStatus(statuses, call("POST", "/v1/identities", internal, { id, phone: newPhone() }));

  async function token(as: string, form: Record<string, string>): Promise<string> {
    const text = await expectStatus([200], call("POST", "/oauth2/v1/tokens", as, new URLSearchParams(form)));
    const { access_token }: { access_token: string } = JSON.parse(text);
    return access_token;
  }

  let operator: Promise<{ username: string; password: string }> | undefined;
  async function newOperator() {
    const [username, password] = [`operator-${randomUUID()}`, randomUUID()];
    await newIdentity(username, [200]);
    await expectStatus([204], call("PUT", `/v1/identities/${username}/password`, internal, { password }));
    return { username, password };
  }

  return {
    base: `${origin}/api/push-orchestration`,
    authBase,
    async userToken(id = randomUUID()) {
      await newIdentity(id, [200, 409]);
      return token(mobileApp, { grant_type: "auth", auth_id: id });
    },
    async backofficeToken() {
      operator ??= newOperator();
      return token(backoffice, { grant_type: "password", ...(await operator) });
    },
    async deleteIdentity(id) {
      await expectStatus([204], call("DELETE", `/v1/identities/${id}`, internal));
    },
  };
}
