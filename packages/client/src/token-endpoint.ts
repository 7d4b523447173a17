/** The OAuth operations of auth: one request, with the client's authentication and a proof. */
import { proofOf, type Signer } from "./dpop.ts";
import { OAuthError, UnavailableError } from "./errors.ts";

/** A client with a secret lives in a back end. An app is a public client: it has none, and binds its sessions to a key. */
export interface ClientCredentials {
  readonly clientId: string;
  readonly clientSecret?: string;
}

export interface Platform {
  readonly fetch: typeof fetch;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Milliseconds since any moment; grows as time passes, whatever the clock is set to. */
  readonly monotonic: () => number;
  /** Resolves after so many milliseconds. */
  readonly sleep: (ms: number) => Promise<void>;
}

export interface TokenResponse {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly expires_in: number;
}

interface Dependencies {
  /** The base URL of auth, such as `https://api.example.com/api/auth`. */
  readonly authUrl: string;
  readonly client: ClientCredentials;
  readonly signer: Signer | undefined;
  readonly platform: Platform;
}

/** Milliseconds after which a request counts as lost. */
const timeoutMs = 10_000;

/** Calls one operation of auth. */
export type Post = (path: string, parameters: Readonly<Record<string, string>>) => Promise<unknown>;

/**
 * @returns posts a form. Rejects with an OAuthError where auth refuses, with an UnavailableError where the response was
 *   lost, or where another try may succeed (408, 425, 429, 5xx)
 */
export function createPost({ authUrl, client, signer, platform }: Dependencies): Post {
  // The latest one that auth has given: proofs with it need no right clock.
  let nonce: string | undefined;

  async function once(path: string, parameters: Readonly<Record<string, string>>): Promise<Response> {
    const url = authUrl + path;
    const form = new URLSearchParams(parameters);
    const headers = new Headers({ accept: "application/json" });
    if (client.clientSecret === undefined) form.set("client_id", client.clientId);
    else headers.set("authorization", `Basic ${basic(client.clientId, client.clientSecret)}`);
    if (signer)
      headers.set("dpop", await proofOf(signer, { method: "POST", url, nonce, now: platform.now() }));
    const response = await platform
      .fetch(url, {
        ...{ method: "POST", headers, body: form, redirect: "error", credentials: "omit" },
        signal: AbortSignal.timeout(timeoutMs),
      })
      .catch((cause) => {
        throw new UnavailableError("Auth cannot be reached.", undefined, cause);
      });
    nonce = response.headers.get("dpop-nonce") ?? nonce;
    return response;
  }

  return async (path, parameters) => {
    try {
      return await bodyOf(await once(path, parameters));
    } catch (error) {
      const isOfProof = error instanceof OAuthError && proofErrors.has(error.code);
      if (!signer || !isOfProof) throw error;
      return bodyOf(await once(path, parameters));
    }
  };
}

/** After one of these, a proof with another nonce, or of another moment, may be taken. */
const proofErrors: ReadonlySet<string> = new Set(["use_dpop_nonce", "invalid_dpop_proof"]);

/** RFC 6749 section 2.3.1: both are encoded as a form's values are. */
function basic(...parts: readonly string[]): string {
  return btoa(parts.map((part) => new URLSearchParams({ v: part }).toString().slice(2)).join(":"));
}

async function bodyOf(response: Response): Promise<unknown> {
  const { status, headers } = response;
  const body: unknown = await response.json().catch((cause) => {
    if (response.ok) throw new UnavailableError("The response of auth was cut.", undefined, cause);
  });
  if (response.ok) return body;
  const { error, error_description }: { error?: unknown; error_description?: unknown } = Object(body);
  if (status === 408 || status === 425 || status === 429 || status >= 500 || typeof error !== "string") {
    const seconds = Number(headers.get("retry-after") ?? Number.NaN);
    const after = Number.isFinite(seconds) ? seconds : undefined;
    throw new UnavailableError(`Auth has no response for now (${status}).`, after, body);
  }
  throw new OAuthError(
    error,
    String(error_description ?? error),
    status,
    headers.get("x-request-id") ?? undefined,
  );
}
