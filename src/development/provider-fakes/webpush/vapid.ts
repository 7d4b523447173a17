/** VAPID (RFC 8292) identifies the sender of a push message. Validates `Authorization: vapid t=…, k=…`. */
import { createPublicKey, type KeyObject } from "node:crypto";
import { LRUCache } from "lru-cache";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import { decodeJwt, isSignedBy } from "../jwt.ts";

const maxLifetimeSeconds = 86_400;
/** How much the clocks may differ. */
const leewaySeconds = 60;
/** Size of the cache of valid headers; senders use one for many messages. */
const maxCached = 1000;

interface Sender {
  /** The application server key, base64url. */
  readonly publicKey: string;
  /** `exp` of the VAPID token. */
  readonly expiresAt: number;
}

/** @returns the sender, or an error message if the header is not valid */
export type CheckVapid = (authorization: string | undefined) => Sender | string;

/** @param audience the origin of the push service */
export function createCheckVapid(audience: () => string, clock: Clock): CheckVapid {
  const cache = new LRUCache<string, Sender>({ max: maxCached });

  return (authorization) => {
    if (authorization === undefined) return "Authorization is missing.";
    const now = unixSeconds(clock);
    const cached = cache.get(authorization);
    const sender = cached ?? read(authorization, audience());
    if (typeof sender === "string") return sender;
    if (sender.expiresAt <= now - leewaySeconds) return "The VAPID token has expired.";
    if (sender.expiresAt > now + maxLifetimeSeconds + leewaySeconds) {
      return "The VAPID token expires more than 24 hours from now.";
    }
    if (!cached) cache.set(authorization, sender);
    return sender;
  };
}

function read(authorization: string, audience: string): Sender | string {
  const match = /^vapid +(.+)$/i.exec(authorization);
  if (!match?.[1]) return "Authorization is to be: vapid t=…, k=…";
  const parameters = new Map(match[1].split(",").map((one) => splitOnce(one.trim())));
  const [token, publicKey] = [parameters.get("t"), parameters.get("k")];
  if (!token || !publicKey) return "Authorization needs t and k.";
  const key = keyOf(publicKey);
  if (!key) return "k is no uncompressed point on P-256, in base64url.";
  const jwt = decodeJwt(token);
  if (!jwt || !isSignedBy(jwt, "ES256", key)) return "t is no JWT that k has signed with ES256.";
  const { aud, exp, sub } = jwt.claims;
  if (aud !== audience) return `aud is to be ${audience}.`;
  if (typeof exp !== "number") return "exp is missing.";
  if (typeof sub !== "string" || !/^(mailto:[^@\s]+@[^@\s]+|https:\/\/\S+)$/.test(sub)) {
    return "sub is to be a mailto: or https: URI.";
  }
  return { publicKey, expiresAt: exp };
}

function splitOnce(text: string): [string, string] {
  const at = text.indexOf("=");
  return [text.slice(0, at), text.slice(at + 1).replaceAll('"', "")];
}

function keyOf(publicKey: string): KeyObject | undefined {
  const point = Buffer.from(publicKey, "base64url");
  if (point.length !== 65 || point[0] !== 4) return undefined;
  const [x, y] = [point.subarray(1, 33).toString("base64url"), point.subarray(33).toString("base64url")];
  try {
    return createPublicKey({ key: { kty: "EC", crv: "P-256", x, y }, format: "jwk" });
  } catch {
    return undefined;
  }
}
