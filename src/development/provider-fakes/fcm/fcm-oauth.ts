/**
 * The OAuth 2.0 token endpoint of a Google service account (RFC 7523). Owns the access tokens that were issued,
 * and until when they are valid.
 */
import { createPublicKey, type KeyObject, randomBytes } from "node:crypto";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { ServiceAccount } from "../credentials.ts";
import type { Exchange, FakeResponse } from "../exchange.ts";
import { decodeJwt, isSignedBy, type Jwt } from "../jwt.ts";
import { oauthError, ok } from "./fcm-responses.ts";

const grantType = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const scopes = [
  "https://www.googleapis.com/auth/firebase.messaging",
  "https://www.googleapis.com/auth/cloud-platform",
];
/** The longest lifetime of an assertion. */
const maxAssertionSeconds = 3600;
/** How much the clocks may differ. */
const leewaySeconds = 300;

export interface AccessTokens {
  /** The error response to the request; undefined if it may get a token. */
  refusal(exchange: Exchange): FakeResponse | undefined;
  /** Issues a token. */
  issue(): FakeResponse;
  /** Whether the header has a token that was issued and is still valid. */
  isValid(authorization: string | undefined): boolean;
  /** Makes all tokens invalid, as if they had expired. */
  expire(): void;
  /** The keys of the account, by their ids. */
  readonly keys: Map<string, KeyObject>;
}

/** @param lifetimeSeconds `expires_in` of the tokens */
export function createAccessTokens(
  account: ServiceAccount,
  lifetimeSeconds: number,
  clock: Clock,
): AccessTokens {
  const keys = new Map([[account.private_key_id, createPublicKey(account.private_key)]]);
  /** Milliseconds since the epoch, by the whole header. */
  const validUntil = new Map<string, number>();

  function assertionProblem(jwt: Jwt | undefined): string | undefined {
    if (!jwt) return "Bad Request";
    const { kid } = jwt.header;
    const possible = [...keys].filter(([id]) => kid === undefined || kid === id);
    if (!possible.some(([, key]) => isSignedBy(jwt, "RS256", key))) return "Invalid JWT Signature.";
    const { iss, aud, scope, iat, exp } = jwt.claims;
    if (iss !== account.client_email) return "Invalid grant: account not found";
    if (aud !== account.token_uri) return "Invalid JWT: Failed audience check.";
    const now = unixSeconds(clock);
    const hasValidTimes =
      typeof iat === "number" &&
      typeof exp === "number" &&
      iat <= now + leewaySeconds &&
      exp > now - leewaySeconds &&
      exp > iat &&
      exp - iat <= maxAssertionSeconds;
    if (!hasValidTimes) {
      return "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.";
    }
    const isInScope = typeof scope === "string" && scope.split(" ").some((one) => scopes.includes(one));
    return isInScope ? undefined : "invalid_scope";
  }

  return {
    refusal({ method, headers, body }) {
      if (method !== "POST") return oauthError(405, "invalid_request", "POST only");
      if (!headers["content-type"]?.startsWith("application/x-www-form-urlencoded")) {
        return oauthError(400, "invalid_request", "The body is to be application/x-www-form-urlencoded.");
      }
      const form = new URLSearchParams(body.toString());
      if (form.get("grant_type") !== grantType) {
        return oauthError(
          400,
          "unsupported_grant_type",
          `Invalid grant_type: ${form.get("grant_type") ?? ""}`,
        );
      }
      const problem = assertionProblem(decodeJwt(form.get("assertion") ?? ""));
      if (problem === undefined) return undefined;
      if (problem === "invalid_scope") {
        return oauthError(400, "invalid_scope", "Invalid OAuth scope or ID token audience provided.");
      }
      return oauthError(400, "invalid_grant", problem);
    },
    issue() {
      const now = clock.now();
      for (const [header, until] of validUntil) if (until <= now) validUntil.delete(header);
      const token = `ya29.${randomBytes(48).toString("base64url")}`;
      validUntil.set(`Bearer ${token}`, now + lifetimeSeconds * 1000);
      return ok(JSON.stringify({ access_token: token, expires_in: lifetimeSeconds, token_type: "Bearer" }));
    },
    isValid(authorization) {
      if (authorization === undefined) return false;
      const until = validUntil.get(authorization);
      return until !== undefined && clock.now() < until;
    },
    expire: () => validUntil.clear(),
    keys,
  };
}
