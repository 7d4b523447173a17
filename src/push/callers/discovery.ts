/** Finds what an issuer publishes about itself (OpenID Connect Discovery section 4), and its keys. */

/** Milliseconds that each of the two requests may take. */
const timeoutMs = 2_000;
/** Largest metadata document or key set in bytes; real ones are far smaller. */
const maxBytes = 256 * 1024;

/**
 * The keys that the issuer publishes now, as they are.
 * @throws Error if the issuer cannot be reached or its response does not follow the specification
 */
export async function fetchKeySet(issuer: string): Promise<readonly unknown[]> {
  const address = `${issuer}/.well-known/openid-configuration`;
  const metadata = record(await fetchJson(address), address);
  // OpenID Connect Discovery section 4.3: a document that names another issuer must not be used.
  if (metadata["issuer"] !== issuer) throw new Error(`${address} is of another issuer`);
  const keysAt = URL.parse(String(metadata["jwks_uri"]));
  const isSecure =
    keysAt?.protocol === "https:" || (keysAt?.protocol === "http:" && issuer.startsWith("http:"));
  if (!keysAt || !isSecure) throw new Error(`${address} names no key set that can be used`);
  const { keys } = record(await fetchJson(keysAt.href), keysAt.href);
  if (!Array.isArray(keys)) throw new Error(`${keysAt.href} has no key set`);
  return keys;
}

async function fetchJson(address: string): Promise<unknown> {
  const response = await fetch(address, {
    headers: { accept: "application/json" },
    redirect: "error",
    signal: AbortSignal.timeout(timeoutMs),
  });
  if (!response.ok) {
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
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

function record(value: unknown, address: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new Error(`${address} returned no JSON object`);
  return { ...value };
}
