/** Finds where an issuer publishes its keys and introspects tokens (OpenID Connect Discovery section 4). */
import { fetchJson } from "./fetch-json.ts";

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
