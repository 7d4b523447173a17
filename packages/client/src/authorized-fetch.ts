/** `fetch` with an access token, for the origins that may have it. */
import { GatepostError } from "./errors.ts";

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
 *   of the token (RFC 6750, `invalid_token`) is repeated once with another, unless its body is a stream
 * @throws TypeError for an origin that is neither https nor a loopback address
 */
export function authorizedFetch({ session, origins, ...own }: AuthorizedFetchOptions): typeof fetch {
  const call = own.fetch ?? ((...request) => fetch(...request));
  const trusted = new Set(
    origins.map((origin) => {
      const { protocol, hostname, origin: exact } = new URL(origin);
      if (protocol === "https:" || (protocol === "http:" && loopback.test(hostname))) return exact;
      throw new TypeError(`${origin} is neither https nor a loopback address: no token is sent there`);
    }),
  );

  return async (input, init) => {
    const { url } = input instanceof Request ? input : new Request(input);
    const { origin } = new URL(url);
    if (!trusted.has(origin)) throw new GatepostError(`${origin} is none of the origins that get the token`);
    const send = (token: string) => {
      const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
      headers.set("authorization", `Bearer ${token}`);
      const target = input instanceof Request ? input.clone() : input;
      return call(target, { ...init, headers, redirect: "error" });
    };
    const token = await session.accessToken();
    const response = await send(token);
    const isStream = input instanceof Request ? input.body !== null : init?.body instanceof ReadableStream;
    if (isStream || !isRefused(response)) return response;
    const other = await session.accessToken(token);
    await response.body?.cancel();
    return send(other);
  };
}

function isRefused({ status, headers }: Response): boolean {
  return status === 401 && /error="?invalid_token"?/i.test(headers.get("www-authenticate") ?? "");
}
