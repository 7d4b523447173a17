/** `fetch` with an access token, for the origins that may have it. */
import { GatepostError } from "./errors.ts";
import { unlessAborted } from "./platform.ts";

/** Where a token comes from: a session, or a service's own. */
export interface TokenSource {
  /** @param refused a token that an API has refused with `invalid_token`: another one is returned */
  accessToken(refused?: string): Promise<string>;
}

export interface AuthorizedFetchOptions {
  readonly session: TokenSource;
  /** Those that the token is sent to, such as `https://api.example.com`: https, or a loopback address. */
  readonly origins: readonly string[];
  readonly fetch?: typeof fetch;
}

const loopback = /^(?:localhost|127(?:\.\d+){3}|\[::1\])$/;

/**
 * @returns a `fetch` that sends the token to no other origin, nor after a redirect. A request that is refused because
 *   of the token (RFC 6750, `invalid_token`, or a 401 whose reason a browser hides) is repeated once with another, unless
 *   its body cannot be sent twice: a stream, an iterable. That of a `Request` can; it is kept in memory meanwhile
 * @throws TypeError for an origin that is neither https nor a loopback address
 */
export function authorizedFetch({ session, origins, ...own }: AuthorizedFetchOptions): typeof fetch {
  const call = own.fetch ?? ((...request) => fetch(...request));
  const trusted = new Set(origins.map(securedOrigin));

  return async (input, init) => {
    const request = input instanceof Request ? input : undefined;
    const { origin } = new URL((request ?? new Request(input)).url);
    if (!trusted.has(origin)) throw new GatepostError(`${origin} is none of the origins that get the token`);
    const tokenBeside = (refused?: string) =>
      unlessAborted(init?.signal ?? request?.signal, () => session.accessToken(refused));
    const send = (target: typeof input, token: string) => {
      const headers = new Headers(init?.headers ?? request?.headers);
      headers.set("authorization", `Bearer ${token}`);
      return call(target, { ...init, headers, redirect: init?.redirect === "manual" ? "manual" : "error" });
    };
    const token = await tokenBeside();
    const response = await send(request?.clone() ?? input, token);
    if (!isRefused(response) || !canBeSentAgain(init?.body)) return response;
    await response.body?.cancel();
    return send(input, await tokenBeside(token));
  };
}

function securedOrigin(url: string): string {
  const { protocol, hostname, origin } = new URL(url);
  if (protocol === "https:" || (protocol === "http:" && loopback.test(hostname))) return origin;
  throw new TypeError(`${url} is neither https nor a loopback address: no token is sent there`);
}

function isRefused({ status, headers }: Response): boolean {
  // A browser hides the challenge of an API that does not expose it.
  const challenge = headers.get("www-authenticate") ?? "error=invalid_token";
  return status === 401 && /error="?invalid_token"?/i.test(challenge);
}

function canBeSentAgain(body: unknown): boolean {
  if (typeof (body ?? "") === "string" || ArrayBuffer.isView(body)) return true;
  return [URLSearchParams, FormData, Blob, ArrayBuffer].some((kind) => body instanceof kind);
}
