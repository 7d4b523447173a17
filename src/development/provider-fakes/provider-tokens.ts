/**
 * The provider tokens of APNs: JWTs that one key of one team signs. Owns their checking and Apple's rule that
 * a token is used for at least 20 and at most 60 minutes.
 */
import { createPublicKey } from "node:crypto";
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import type { ApnsReason } from "./apns/apns-responses.ts";
import type { ApnsCredentials } from "./credentials.ts";
import { decodeJwt, isSignedBy } from "./jwt.ts";

const maxAgeSeconds = 3600;
const minRenewalSeconds = 1200;
/** Clocks may differ so much. */
const leewaySeconds = 300;
/** Tokens are remembered once they are found right: to verify the signature each time would be most of the work. */
const maxRemembered = 100;

export interface ProviderTokens {
  /** What is wrong with the `authorization` of a request; undefined if nothing is. */
  problem(authorization: string | undefined): ApnsReason | undefined;
  /** Forgets which tokens were used, and with them when they were renewed. */
  clear(): void;
}

/** For one key of one team. */
export function createProviderTokens(credentials: ApnsCredentials, clock: Clock): ProviderTokens {
  const publicKey = createPublicKey(credentials.privateKey);
  /** `iat` by the whole header. */
  const remembered = new Map<string, number>();
  /** Those of the last hour. Tokens with the same one count as the same: several servers may sign it each. */
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
    const isOurs = header["kid"] === credentials.keyId && claims["iss"] === credentials.teamId;
    if (!isOurs || typeof iat !== "number" || !isSignedBy(jwt, "ES256", publicKey)) {
      return "InvalidProviderToken";
    }
    return iat;
  }

  return {
    problem(authorization) {
      if (authorization === undefined || !/^bearer +\S/i.test(authorization)) return "MissingProviderToken";
      const known = remembered.get(authorization);
      const iat = known ?? read(authorization);
      if (typeof iat === "string") return iat;
      const now = unixSeconds(clock);
      if (iat > now + leewaySeconds) return "InvalidProviderToken";
      if (now - iat > maxAgeSeconds) return "ExpiredProviderToken";
      if (known !== undefined) return undefined;
      if (isTooSoon(iat, now)) return "TooManyProviderTokenUpdates";
      if (remembered.size >= maxRemembered) remembered.clear();
      remembered.set(authorization, iat);
      return undefined;
    },
    clear() {
      remembered.clear();
      issuedAt = [];
    },
  };
}
