/**
 * The provider tokens of APNs: JWTs signed by one key of one team. Owns their validation and Apple's rule that a
 * token is used for at least 20 and at most 60 minutes.
 */
import { createPublicKey, type KeyObject } from "node:crypto";
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import type { ApnsReason } from "./apns/apns-responses.ts";
import type { ApnsCredentials } from "./credentials.ts";
import { decodeJwt, isSignedBy } from "./jwt.ts";

const maxAgeSeconds = 3600;
const minRenewalSeconds = 1200;
/** How much the clocks may differ. */
const leewaySeconds = 300;
/** Size of the cache of valid tokens. Without it, most of the work would be verifying signatures. */
const maxCached = 100;

export interface ProviderTokens {
  /** The reason to refuse the `authorization` of a request; undefined if it is valid. */
  problem(authorization: string | undefined): ApnsReason | undefined;
  /** Forgets all tokens, and when they were renewed. */
  clear(): void;
  /** The keys of the team, by their ids. */
  readonly keys: Map<string, KeyObject>;
}

/** For the keys of one team. */
export function createProviderTokens(credentials: ApnsCredentials, clock: Clock): ProviderTokens {
  const keys = new Map([[credentials.keyId, createPublicKey(credentials.privateKey)]]);
  /** `iat` by the whole header. */
  const cache = new Map<string, number>();
  /** The `iat` of the tokens of the last hour. Tokens with the same `iat` count as one: several servers may sign it. */
  let issuedAt: number[] = [];

  function isTooSoon(iat: number, now: number): boolean {
    issuedAt = issuedAt.filter((other) => now - other <= maxAgeSeconds);
    if (issuedAt.includes(iat)) return false;
    if (issuedAt.some((other) => Math.abs(other - iat) < minRenewalSeconds)) return true;
    issuedAt.push(iat);
    return false;
  }

  function read(authorization: string): number | ApnsReason {
    const jwt = decodeJwt(authorization.replace(/^bearer +/i, ""));
    if (!jwt) return "InvalidProviderToken";
    const { header, claims } = jwt;
    const { iat } = claims;
    const key = keys.get(String(header["kid"]));
    const isOurs = key && claims["iss"] === credentials.teamId && isSignedBy(jwt, "ES256", key);
    if (!isOurs || typeof iat !== "number") {
      return "InvalidProviderToken";
    }
    return iat;
  }

  return {
    problem(authorization) {
      if (authorization === undefined || !/^bearer +\S/i.test(authorization)) return "MissingProviderToken";
      const cached = cache.get(authorization);
      const iat = cached ?? read(authorization);
      if (typeof iat === "string") return iat;
      const now = unixSeconds(clock);
      if (iat > now + leewaySeconds) return "InvalidProviderToken";
      if (now - iat > maxAgeSeconds) return "ExpiredProviderToken";
      if (cached !== undefined) return undefined;
      if (isTooSoon(iat, now)) return "TooManyProviderTokenUpdates";
      if (cache.size >= maxCached) cache.clear();
      cache.set(authorization, iat);
      return undefined;
    },
    clear() {
      cache.clear();
      issuedAt = [];
    },
    keys,
  };
}
