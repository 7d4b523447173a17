/** Distinguishes access tokens from the other tokens that an issuer signs with the same keys. */
import type { JWTPayload } from "jose";

/**
 * The kind of token by the media type in its header.
 * @returns `access` for the type of RFC 9068, which only access tokens have; `any` for JWT or no type; undefined for
 *   another type, which cannot be that of an access token
 */
export function kindOfType(type: string | undefined): "access" | "any" | undefined {
  if (type === "at+jwt") return "access";
  return type === undefined || type === "jwt" ? "any" : undefined;
}

/** Claims of ID tokens (OpenID Connect Core sections 2 and 3.3.2.11) and of event tokens (RFC 8417). */
const otherClaims = ["at_hash", "c_hash", "s_hash", "events"];

/**
 * The claim of a token that is bound to a key of its sender (RFC 9449 section 6, RFC 8705 section 3): not checked here.
 */
const senderConstraint = "cnf";

/**
 * Whether the claims are those of another token than a bearer access token.
 *
 * @param isMarked whether the header's type says that it is an access token
 */
export function isOtherToken(claims: JWTPayload, isMarked: boolean): boolean {
  if ([...otherClaims, senderConstraint].some((name) => claims[name] !== undefined)) return true;
  // Keycloak marks its tokens: Bearer, ID, Refresh, Offline, Logout. So does Amazon Cognito: access, id.
  const { typ, token_use: use } = claims;
  if (typ !== undefined && String(typ).toLowerCase() !== "bearer") return true;
  if (use !== undefined && use !== "access") return true;
  // Keycloak's access tokens may have the nonce of ID tokens; those that nothing marks have none.
  const isAccess = isMarked || typ !== undefined || use !== undefined;
  return !isAccess && claims["nonce"] !== undefined;
}
