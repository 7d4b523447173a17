/** A JWT in the compact serialization (RFC 7515 section 7.1): read and verified, never throwing for a token. */
import { type JsonWebKey, type KeyObject, verify } from "node:crypto";
import { type JWTPayload, type JWTVerifyOptions, jwtVerify } from "jose";
import { repeatedMember } from "../base/json-members.ts";

/** A JWT that has one spelling and one meaning. Its signature is not verified. */
interface Jws {
  readonly token: string;
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
  /** The media type in `typ` (RFC 7515 section 4.1.9), in lower case and without `application/`; undefined: none. */
  readonly type: string | undefined;
}

/** The algorithm that follows from the type of a key, never from the header of a token. */
export function algorithmOf({ asymmetricKeyType: type }: KeyObject): string {
  const algorithms = new Map([
    ["rsa", "RS256"],
    ["ec", "ES256"],
    ["ed25519", "EdDSA"],
  ]);
  const algorithm = algorithms.get(String(type));
  if (algorithm === undefined) throw new Error(`no JWT is verified with a key of the type ${type}`);
  return algorithm;
}

/** The requirements on a token's signature and claims. The algorithms never follow from the token. */
type JwtRules = Omit<JWTVerifyOptions, "algorithms"> & { readonly algorithms: readonly string[] };

/** The compact serialization, with nothing around it. Far longer text than any token or proof is refused undecoded. */
const compactPattern = /^([A-Za-z0-9_-]{1,1024})\.([A-Za-z0-9_-]{1,8192})\.([A-Za-z0-9_-]{1,2048})$/;

/** Reads a token; undefined if it has several spellings (padding, stray bits) or meanings (repeated members). */
export function readJws(token: string): Jws | undefined {
  const [, header = "", payload = "", signature = ""] = compactPattern.exec(token) ?? [];
  // The unused bits of the last character must be zero. Those of the other parts are signed.
  if (Buffer.from(signature, "base64url").toString("base64url") !== signature) return undefined;
  const [parameters, claims] = [objectIn(header), objectIn(payload)];
  // RFC 7797: an unencoded payload. Without `crit`, a library that does not implement `b64` ignores it.
  if (!parameters || Object.hasOwn(parameters, "b64") || !claims) return undefined;
  const { typ } = parameters;
  if (typ !== undefined && typeof typ !== "string") return undefined;
  return { token, header: parameters, claims, type: typ?.toLowerCase().replace(/^application\//, "") };
}

/** Whether a claim is a NumericDate (RFC 7519 section 2): seconds since 1970, which may have a fraction. */
export function isNumericDate(claim: unknown): claim is number {
  return typeof claim === "number" && Math.abs(claim) <= Number.MAX_SAFE_INTEGER;
}

/** The claims of a JWT that the key, judged before, has signed and that meets the rules; undefined for any other. */
export async function verifiedClaims(
  { token }: Jws,
  key: KeyObject,
  { algorithms, ...rules }: JwtRules,
): Promise<JWTPayload | undefined> {
  try {
    return (await jwtVerify(token, key, { ...rules, algorithms: [...algorithms] })).payload;
  } catch {
    return undefined;
  }
}

/**
 * Whether the public key has signed a JWT by ES256 (RFC 7518 section 3.4). jose would take four times as long with a key
 * that it has not seen before.
 */
export function isSignedByEs256({ token, header }: Jws, key: JsonWebKey): boolean {
  if (header["alg"] !== "ES256" || Object.hasOwn(header, "crit")) return false;
  const end = token.lastIndexOf(".");
  const [input, signature] = [
    Buffer.from(token.slice(0, end)),
    Buffer.from(token.slice(end + 1), "base64url"),
  ];
  try {
    return verify("sha256", input, { key, format: "jwk", dsaEncoding: "ieee-p1363" }, signature);
  } catch {
    // No point of the curve.
    return false;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The JSON object of a part; undefined if it is none or repeats a member. */
function objectIn(part: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const text = utf8.decode(Buffer.from(part, "base64url"));
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject && repeatedMember(text) === undefined ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}
