/** `fetch` with the user's access token, for the origins that may have it. */
import type { Session } from "./session.ts";

export interface AuthorizedFetchOptions {
  readonly session: Pick<Session, "accessToken">;
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
export function authorizedFetch({
  session,
  origins,
  fetch: call = fetch,
}: AuthorizedFetchOptions): typeof fetch {
  const trusted = new Set(
    origins.map((origin) => {
      const { protocol, hostname, origin: exact } = new URL(origin);
      if (protocol === "https:" || (protocol === "http:" && loopback.test(hostname))) return exact;
      throw new TypeError(`${origin} is neither https nor a loopback address: no token is sent there`);
    }),
  );

  return async (input, init) => {
    const url = new URL(input instanceof Request ? input.url : input, globalThis.location?.href);
    if (!trusted.has(url.origin))
      throw new TypeError(`${url.origin} is none of the origins that get the token`);
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
    await response.body?.cancel();
    return send(await session.accessToken(token));
  };
}

function isRefused({ status, headers }: Response): boolean {
  return status === 401 && /error="?invalid_token"?/i.test(headers.get("www-authenticate") ?? "");
}
