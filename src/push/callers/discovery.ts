/** Where an issuer publishes its keys, and which of them can verify access tokens. */

/** A public RSA key. */
export interface PublishedKey {
  readonly kid: string;
  readonly jwk: { readonly kty: "RSA"; readonly n: string; readonly e: string };
}

/** Milliseconds that each of the two requests may take. */
const timeoutMs = 2_000;
/** Far more than any document of either kind has. */
const maxBytes = 256 * 1024;
/** Characters of a modulus of 2048 bits in base64url. */
const leastModulus = 342;

/**
 * The keys that the issuer publishes now.
 * @throws Error if it cannot be reached or does not answer as its specification says
 */
export async function fetchKeySet(issuer: string): Promise<PublishedKey[]> {
  const address = `${issuer}/.well-known/openid-configuration`;
  const metadata = record(await fetchJson(address), address);
  // OpenID Connect Discovery section 4.3: a document that speaks for another issuer must not be used.
  if (metadata["issuer"] !== issuer) throw new Error(`${address} is of another issuer`);
  const keysAt = URL.parse(String(metadata["jwks_uri"]));
  const isSecure =
    keysAt?.protocol === "https:" || (keysAt?.protocol === "http:" && issuer.startsWith("http:"));
  if (!keysAt || !isSecure) throw new Error(`${address} names no key set that can be used`);
  const { keys } = record(await fetchJson(keysAt.href), keysAt.href);
  if (!Array.isArray(keys)) throw new Error(`${keysAt.href} has no key set`);
  const usable = keys.flatMap(usableKey);
  // An id that two keys have says nothing.
  return usable.filter(({ kid }) => usable.filter((other) => other.kid === kid).length === 1);
}

async function fetchJson(address: string): Promise<unknown> {
  const response = await fetch(address, {
    headers: { accept: "application/json" },
    redirect: "error",
    signal: AbortSignal.timeout(timeoutMs),
  });
  if (!response.ok) {
    await response.body?.cancel();
    throw new Error(`${address} answered ${response.status}`);
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > maxBytes) throw new Error(`${address} answered more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  return JSON.parse(Buffer.concat(chunks).toString("utf8"));
}

function record(value: unknown, address: string): Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) throw new Error(`${address} answered no JSON object`);
  return { ...value };
}

/** The key, if it is meant for signatures with RS256 and strong enough; what else there is, is passed over. */
function usableKey(value: unknown): PublishedKey[] {
  if (typeof value !== "object" || value === null) return [];
  const {
    kid,
    kty,
    n,
    e,
    use = "sig",
    alg = "RS256",
    key_ops: operations = ["verify"],
  } = { ...value } as Readonly<Record<string, unknown>>;
  if (typeof kid !== "string" || kty !== "RSA" || use !== "sig" || alg !== "RS256") return [];
  if (!Array.isArray(operations) || !operations.includes("verify")) return [];
  if (typeof n !== "string" || typeof e !== "string" || n.length < leastModulus) return [];
  return [{ kid, jwk: { kty, n, e } }];
}
