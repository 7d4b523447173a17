/** Finds where an issuer publishes its keys and introspects tokens (OpenID Connect Discovery section 4). */
import { codeOf } from "../../platform/base/error-code.ts";
import { type ServiceError, unavailable } from "../../platform/base/errors.ts";

/** An error whose log line, not whose response, says which setting and which issuer it is about. */
export function identityProviderUnavailable(issuer: string, cause: unknown): ServiceError {
  const logged = new Error(`IDENTITY_PROVIDER_ISSUER_URI is ${issuer}: the request failed`, { cause });
  return unavailable("The identity provider", logged);
}

/**
 * Fetches the keys that the issuer publishes now, unchecked.
 * @throws Error if the issuer cannot be reached or its response does not follow the specification
 */
export async function fetchKeySet(issuer: string): Promise<readonly unknown[]> {
  const address = await findEndpoint(issuer, "jwks_uri");
  const { keys } = await fetchJson(address);
  if (!Array.isArray(keys)) throw new Error(`${address} has no key set`);
  return keys;
}

/**
 * Fetches the URL of this member in the issuer's metadata; https unless the issuer itself is http.
 * @throws the errors of {@link fetchKeySet}
 */
export async function findEndpoint(
  issuer: string,
  member: "jwks_uri" | "introspection_endpoint",
): Promise<string> {
  const address = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const metadata = await fetchJson(address);
  // OpenID Connect Discovery section 4.3: a document that names another issuer must not be used.
  if (metadata["issuer"] !== issuer) throw new Error(`${address} is of another issuer`);
  const url = URL.parse(String(metadata[member]));
  const isSecure = url?.protocol === "https:" || (url?.protocol === "http:" && issuer.startsWith("http:"));
  if (!url || !isSecure) throw new Error(`${address} names no ${member} that can be used`);
  return url.href;
}

/** The timeout of a request, in milliseconds. */
const timeoutMs = 2_000;
/** The most bytes of a response; real ones are far smaller. */
const maxBytes = 256 * 1024;

/** Codes of a connection that the other side closed, perhaps because it was idle. */
const closed = /^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/;

/**
 * Fetches a JSON object, which the identity provider returns with status 200. Redirects are not followed. A request
 * whose connection is closed is sent a second time, as it may be: it only asks.
 * @throws Error if it returns anything else, or nothing before the timeout
 */
export async function fetchJson(
  address: string,
  request: {
    readonly method?: "POST";
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: URLSearchParams;
  } = {},
): Promise<Readonly<Record<string, unknown>>> {
  const headers = new Headers(request.headers);
  headers.set("accept", "application/json");
  const signal = AbortSignal.timeout(timeoutMs);
  const send = () => fetch(address, { ...request, headers, redirect: "error", signal });
  const response = await send().catch((error: unknown) => {
    if (error instanceof Error && closed.test(codeOf(error.cause) ?? "")) return send();
    throw error;
  });
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new Error(`${address} returned status ${response.status}`);
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > maxBytes) throw new Error(`${address} returned more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  const value: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  if (typeof value !== "object" || value === null) throw new Error(`${address} returned no JSON object`);
  return { ...value };
}
