/** Checks before the first step that the server runs, so that the demo can print how to start it. */
import { once } from "node:events";
import { connect } from "node:net";
import type { Addresses } from "./calls.ts";
import { readContract } from "./contract.ts";

/** Milliseconds to wait for a response. */
const timeoutMs = 5_000;

/** The addresses in `GATEPOST_URL` and `GATEPOST_GRPC`, or those of `npm start`; undefined if they are not valid. */
export function readAddresses(env: NodeJS.ProcessEnv): Addresses | undefined {
  const http = URL.parse(env["GATEPOST_URL"] || "http://127.0.0.1:8080");
  if (http === null || !/^https?:$/.test(http.protocol)) return undefined;
  const grpc = env["GATEPOST_GRPC"] || `${http.hostname}:9090`;
  return URL.canParse(`http://${grpc}`) ? { http: http.origin, grpc } : undefined;
}

/** Why the demo cannot use the server at these addresses; undefined if it can. */
export async function obstacle({ http, grpc }: Addresses): Promise<string | undefined> {
  const jwks = await tryGet(`${http}/api/auth/v1/jwks`);
  if (typeof jwks === "string") return `No server answers at ${http} (${jwks}).`;
  const path = "GET /api/auth/v1/jwks";
  if (!isKeySet(jwks)) {
    return `What answers at ${http} is not gatepost: it answered ${path} with ${jwks.status} ${jwks.mediaType}.`;
  }
  const verifier = await tryGet(`${http}/otp-verifier/v1/messages?phone=%2B12025550123`);
  if (typeof verifier === "string" || verifier.status !== 200) {
    return `The server at ${http} has no built-in OTP verifier. The demo needs one in development mode: without NODE_ENV=production and OTP_VERIFIER_URL.`;
  }
  const push = await tryGet(`${http}/api/push-orchestration/openapi.json`);
  if (typeof push === "string" || push.status !== 200) {
    return `The server at ${http} does not run the push service. The demo needs both: without SERVICES, or with SERVICES=auth,push.`;
  }
  const refusal = await connectionError(grpc);
  return refusal && `Nothing listens for gRPC at ${grpc} (${refusal}).`;
}

interface ReceivedResponse {
  readonly status: number;
  readonly mediaType: string;
  readonly body: string;
}

/** The response, or the reason why there is none. */
async function tryGet(url: string): Promise<ReceivedResponse | string> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    const mediaType = (response.headers.get("content-type") ?? "").split(";", 1)[0] ?? "";
    return { status: response.status, mediaType, body: await response.text() };
  } catch (thrown) {
    return reasonOf(thrown);
  }
}

function isKeySet(response: ReceivedResponse): boolean {
  try {
    readContract("auth")({ method: "GET", path: "/v1/jwks", ...response });
    return response.status === 200;
  } catch {
    return false;
  }
}

async function connectionError(address: string): Promise<string | undefined> {
  const { hostname, port } = new URL(`http://${address}`);
  const socket = connect({ host: hostname.replace(/^\[|\]$/g, ""), port: Number(port || 80) });
  socket.setTimeout(timeoutMs, () => socket.destroy(new Error("it does not answer")));
  try {
    await once(socket, "connect");
    return undefined;
  } catch (thrown) {
    return reasonOf(thrown);
  } finally {
    socket.destroy();
  }
}

/** The innermost error, in a few words. */
function reasonOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  if (thrown.cause instanceof Error) return reasonOf(thrown.cause);
  const code = "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
  if (code === "ECONNREFUSED") return "connection refused";
  return thrown.message || code || thrown.name;
}
