/**
 * Verifies access tokens by their signature and claims: those of RFC 9068, and those of identity providers that do not
 * follow it. Revocation is checked elsewhere.
 */
import { hash } from "node:crypto";
import type { JWTPayload } from "jose";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../platform/base/clock.ts";
import { isNumericDate, readJws, verifiedClaims } from "../../platform/crypto/jws.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { KeySet, VerificationKey } from "./key-set.ts";

/** The claims that identify a caller. */
export interface TokenClaims {
  readonly sub: string;
  readonly clientId: string;
  /** The authorization that the token is from, or what another issuer calls its session; undefined: it is not said. */
  readonly sid: string | undefined;
  /** Whether `sub` is a client, which acts for no user. */
  readonly isClient: boolean;
}

/**
 * Returns the claims of a valid token; undefined for any other token.
 * @throws unavailable if the issuer's keys cannot be fetched
 */
type VerifyAccessToken = (token: string) => Promise<TokenClaims | undefined>;

/** The most seconds by which the issuer's clock may be ahead. Expiry has no such tolerance. */
const clockSkewSeconds = 30;

/** The most characters of a claim that is accepted as an id. */
const maxIdLength = 256;

interface Verified {
  readonly claims: TokenClaims & { readonly exp: number; readonly notBefore: number };
  /** The key that verified the signature. If the issuer withdraws it, the token is no longer valid. */
  readonly key: VerificationKey;
}

interface Dependencies {
  readonly issuer: string;
  /** The audience that `aud` must name; undefined: any, and only tokens of the type at+jwt are accepted. */
  readonly audience: string | undefined;
  readonly keySet: KeySet;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The most verified tokens in the cache, which is keyed by the digest of the token. */
  readonly cacheSize?: number;
}

export function createVerifyAccessToken({
  issuer,
  audience,
  keySet,
  clock,
  logger,
  cacheSize = 20_000,
}: Dependencies): VerifyAccessToken {
  // Caches that a signature is valid, so that it is verified once; never that the token is active.
  const verified = new LRUCache<string, Verified>({ max: cacheSize });

  let isLogged = false;
  function warnOnce(): void {
    if (isLogged) return;
    isLogged = true;
    logger.warn(
      { issuer },
      "A token was refused whose typ is not at+jwt: without TOKEN_AUDIENCE no other is accepted",
    );
  }

  async function verify(token: string): Promise<Verified | undefined> {
    const jws = readJws(token);
    const kid = jws?.header["kid"];
    const kind = kindOfType(jws?.type);
    if (!jws || typeof kid !== "string" || !kind) return undefined;
    const isMarked = kind === "access";
    if (!isMarked && audience === undefined) {
      warnOnce();
      return undefined;
    }
    const key = await keySet.key(kid);
    const claims =
      key &&
      (await verifiedClaims(jws, key.key, {
        algorithms: key.algorithms,
        issuer,
        ...(audience !== undefined && { audience }),
        currentDate: new Date(clock.now()),
        clockTolerance: clockSkewSeconds,
        requiredClaims: ["sub", "exp", "iat"],
      }));
    if (!claims || isOtherToken(claims, isMarked)) return undefined;
    const { sub, azp, client_id: clientId = azp, sid, gty, exp, iat, nbf = iat } = claims;
    // The client of RFC 9068, or the authorized party that OpenID Connect has for it; never two different ones.
    if (!isId(sub) || !isId(clientId) || (azp !== undefined && azp !== clientId)) return undefined;
    if (!isNumericDate(exp) || !isNumericDate(iat) || !isNumericDate(nbf)) return undefined;
    return {
      claims: {
        ...{ sub, clientId, exp, notBefore: Math.max(iat, nbf) },
        sid: isId(sid) ? sid : undefined,
        isClient: clientGrants.has(gty),
      },
      key,
    };
  }

  return async (token) => {
    const digest = hash("sha256", token, "base64url");
    let found = verified.get(digest);
    if (found && (await keySet.key(found.key.kid)) !== found.key) {
      verified.delete(digest);
      found = undefined;
    }
    if (!found) {
      found = await verify(token);
      if (found) verified.set(digest, found);
    }
    if (!found) return undefined;
    const { exp, notBefore, ...claims } = found.claims;
    const now = clock.now() / 1000;
    if (exp <= now) verified.delete(digest);
    return exp > now && notBefore <= now + clockSkewSeconds ? claims : undefined;
  };
}

/** Whether the claim is a text that can be stored: without control characters and halves of surrogate pairs. */
function isId(claim: unknown): claim is string {
  return typeof claim === "string" && claim.length <= maxIdLength && /^[^\p{Cc}\p{Cs}]+$/u.test(claim);
}

/**
 * The kind of token by the media type in its header: `access` for that of RFC 9068, `any` for JWT or none; undefined:
 * no access token.
 */
function kindOfType(type: string | undefined): "access" | "any" | undefined {
  if (type === "at+jwt") return "access";
  return type === undefined || type === "jwt" ? "any" : undefined;
}

/** `gty` of tokens whose `sub` is a client: of the auth service, and of Auth0. */
const clientGrants = new Set<unknown>(["client_credentials", "client-credentials"]);

/** Claims of ID tokens (OpenID Connect Core sections 2 and 3.3.2.11) and of event tokens (RFC 8417). */
const otherClaims = ["at_hash", "c_hash", "s_hash", "events"];

/**
 * The claim of a token that is bound to a key of its sender (RFC 9449 section 6, RFC 8705 section 3): not checked here.
 */
const senderConstraint = "cnf";

/** Whether the claims are not those of a bearer access token. @param isMarked whether the header says that they are */
function isOtherToken(claims: JWTPayload, isMarked: boolean): boolean {
  if ([...otherClaims, senderConstraint].some((name) => claims[name] !== undefined)) return true;
  // Keycloak marks its tokens: Bearer, ID, Refresh, Offline, Logout. So does Amazon Cognito: access, id.
  const { typ, token_use: use } = claims;
  if (typ !== undefined && String(typ).toLowerCase() !== "bearer") return true;
  if (use !== undefined && use !== "access") return true;
  // Keycloak's access tokens may have the nonce of ID tokens; those that nothing marks have none.
  const isAccess = isMarked || typ !== undefined || use !== undefined;
  return !isAccess && claims["nonce"] !== undefined;
}
