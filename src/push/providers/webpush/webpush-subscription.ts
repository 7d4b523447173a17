/**
 * The token of a browser: its PushSubscription as JSON (W3C Push API). Its URL is checked against server-side request
 * forgery.
 */
import { isUncompressedPoint } from "../../provider-key-settings.ts";
import { member } from "../outcomes.ts";

/** Longest token, in characters; real ones have about 400. */
const maxLength = 4096;

export interface Subscription {
  readonly endpoint: URL;
  /** The browser's public key: 65 bytes, an uncompressed point of P-256. */
  readonly p256dh: Buffer;
  /** The secret that authenticates messages: 16 bytes. */
  readonly auth: Buffer;
}

/** The subscription, or what is wrong with it, in words. */
type ParsedSubscription = { readonly value: Subscription } | { readonly problem: string };

/**
 * @param allowedHosts exact hosts, `*.suffix` for hosts below one, or whole origins such as
 *   `http://127.0.0.1:9303`
 */
export function parseSubscription(token: string, allowedHosts: readonly string[]): ParsedSubscription {
  if (token.length > maxLength) return { problem: `must not be longer than ${maxLength} characters` };
  let json: unknown;
  try {
    json = JSON.parse(token);
  } catch {
    return { problem: "must be a PushSubscription as JSON" };
  }
  const keys = member(json, "keys");
  const p256dh = bytesOf(member(keys, "p256dh"));
  const auth = bytesOf(member(keys, "auth"));
  if (p256dh === undefined || !isUncompressedPoint(p256dh)) {
    return { problem: "must have keys.p256dh, an uncompressed point of P-256 in base64url" };
  }
  if (auth?.length !== 16) return { problem: "must have keys.auth, 16 bytes in base64url" };
  const endpoint = allowedUrl(member(json, "endpoint"), allowedHosts);
  if (endpoint === undefined) return { problem: "must have an endpoint of a push service that is allowed" };
  return { value: { endpoint, p256dh, auth } };
}

/** The subscription as JSON, the same for every way to write it. */
export function canonicalText({ endpoint, p256dh, auth }: Subscription): string {
  const keys = { p256dh: p256dh.toString("base64url"), auth: auth.toString("base64url") };
  return JSON.stringify({ endpoint: endpoint.href, keys });
}

/** Decodes base64url. Padding is accepted, as some clients write it. */
function bytesOf(value: unknown): Buffer | undefined {
  return typeof value === "string" && /^[\w-]{1,128}={0,2}$/.test(value)
    ? Buffer.from(value, "base64url")
    : undefined;
}

/** Host names in ASCII: IP addresses, a final dot and other scripts do not match. */
const hostPattern = /^[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,}$/;

/** The endpoint, if it is on an allowed host. The connection is made from the same URL object that is checked here. */
function allowedUrl(endpoint: unknown, allowedHosts: readonly string[]): URL | undefined {
  // Rejects characters on which URL parsers disagree: spaces, tabs, backslashes, other scripts.
  if (typeof endpoint !== "string" || !/^[\x21-\x5b\x5d-\x7e]+$/.test(endpoint)) return undefined;
  const url = URL.parse(endpoint);
  const authority = /^https?:\/\/([^/?#]+)/.exec(endpoint)?.[1];
  if (url === null || url.hash !== "" || authority === undefined) return undefined;
  // Rejects user names, escapes and other spellings of the host.
  if (authority !== url.host && authority !== `${url.host}:443`) return undefined;
  // As a relative reference, a path that begins with `//` names another host.
  if (url.pathname.startsWith("//")) return undefined;
  if (allowedHosts.includes(url.origin)) return url;
  if (url.protocol !== "https:" || url.port !== "" || !hostPattern.test(url.hostname)) return undefined;
  return allowedHosts.some((allowed) => isAt(url.hostname, allowed)) ? url : undefined;
}

function isAt(hostname: string, allowed: string): boolean {
  return allowed.startsWith("*.") ? hostname.endsWith(allowed.slice(1)) : hostname === allowed;
}
