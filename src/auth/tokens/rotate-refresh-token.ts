/**
 * Refresh token rotation (RFC 9700 section 4.14). Its guarantees:
 *
 * 1. Rotation updates the row of the authorization; what it adds does not grow with the number of refreshes.
 * 2. The database holds no token that could be used.
 * 3. A retry within the grace window gets the same refresh token, and the same access token while it is active; n
 *    concurrent requests rotate once. The lifetimes of the response are what is left then.
 * 4. A replaced token ends the authorization, and an event reports it, when it is presented after its successor
 *    was presented, or after the window that began when the rotation's commit was seen to succeed. Time in which the
 *    database could not be used does not count.
 * 5. A forged or garbled token has no effect.
 * 6. After a crash at any point, the client either has the new pair or gets it by a retry: the new pair is
 *    stored, encrypted under the presented token, in the statement that makes it valid.
 * 7. A pair is handed out, the first time and to a retry, once the rotation is confirmed by the standbys that commits
 *    wait for.
 * 8. Tokens that are bound to a key are exchanged by who has proven it. Another key is refused and ends nothing. For them
 *    the grace lasts until the successor is used, and a retry gets an access token of its own, so that an app which was
 *    killed after a rotation goes on (an exception to 3 and 4). Three rotations in a row that are each repeated later
 *    than the window are reuse: not a killed app, but a key in two hands.
 * 9. The database's clock decides, in the statement that decides: a pause of a process, or of the database, is
 *    never taken for reuse.
 */
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import { mayActAs } from "../clients/as-client.ts";
import type { Client } from "../clients/client-repository.ts";
import type { Confirmed } from "./confirmed.ts";
import type { AuthorizationFacts, CurrentTokens } from "./current-tokens.ts";
import { endAuthorization } from "./end-authorizations.ts";
import type { Introspect } from "./introspect.ts";
import { noteLateRepeat } from "./late-repeats.ts";
import { type FindPresented, isReuse, type PresentedToken } from "./presented-token.ts";
import { decodeRefreshToken, newRefreshToken, type RefreshToken, seal, unseal } from "./refresh-token.ts";
import type { Rotations } from "./rotations.ts";
import type { TokenIssuer, TokenPair } from "./token-issuer.ts";

interface Dependencies {
  readonly db: Database;
  /** The database's, by which access tokens are signed and introspected. */
  readonly clock: Clock;
  readonly currentTokens: CurrentTokens;
  readonly findPresented: FindPresented;
  readonly rotations: Rotations;
  readonly tokenIssuer: TokenIssuer;
  readonly introspect: Introspect;
  readonly confirmed: Confirmed;
}

/** Chooses the scopes of the new access token from those of the authorization; throws to refuse. */
type ScopeChoice = (permitted: readonly string[]) => readonly string[];

/** A request to refresh. */
interface Presented {
  readonly token: string;
  /** Of the key that the client has proven (RFC 7638, base64url); undefined: none. */
  readonly keyThumbprint: string | undefined;
  readonly chooseScopes: ScopeChoice;
  /** For events. */
  readonly requestId: string;
}

/** The same, with the token in its parts. */
type PresentedParts = Omit<Presented, "token"> & { readonly token: RefreshToken };

/** Exchanges a refresh token for the next pair; undefined if it is not valid for this client and key. */
export type RotateRefreshToken = (client: Client, presented: Presented) => Promise<TokenPair | undefined>;

export function createRotateRefreshToken(dependencies: Dependencies): RotateRefreshToken {
  const { db, clock, currentTokens, findPresented, rotations } = dependencies;
  const { tokenIssuer, introspect, confirmed } = dependencies;

  async function rotate(
    client: Client,
    presented: RefreshToken,
    authorization: AuthorizationFacts,
    scopes: readonly string[],
  ): Promise<TokenPair | undefined> {
    const { identityId, asClient, keyThumbprint } = authorization;
    const next = newRefreshToken(presented.authorizationId, presented.family);
    const pair = await tokenIssuer.signPair({ client, identityId, refreshToken: next, scopes, asClient });
    const lifetimes = client.tokenSettings;
    const isBound = keyThumbprint !== undefined;
    const kept = isBound ? next.rotating.toString("base64url") : JSON.stringify(pair);
    const replacement = { presented, next, sealedPair: seal(presented.rotating, kept), lifetimes };
    const isRotated = isBound ? rotations.rotateBound(replacement) : rotations.rotate(replacement);
    if (!(await isRotated)) return undefined;
    currentTokens.remember(next, authorization);
    return pair;
  }

  /** Rotates without a look-up. Undefined if the token is not remembered, or if a look-up must decide what is wrong. */
  async function rotateRemembered(client: Client, { token, keyThumbprint, chooseScopes }: PresentedParts) {
    const remembered = currentTokens.take(token);
    if (!remembered || !isHeldBy(remembered, client, keyThumbprint)) return undefined;
    let scopes: readonly string[];
    try {
      scopes = chooseScopes(permittedTo(client, remembered));
    } catch {
      // A refusal of the scope comes after one of the token, which the look-up decides.
      return undefined;
    }
    return rotate(client, token, remembered, scopes);
  }

  /** The pair with the lifetimes that are left; undefined if its access token is not active. */
  async function ifActive(pair: TokenPair, refreshSeconds: number): Promise<TokenPair | undefined> {
    const now = unixSeconds(clock);
    const claims = await introspect(pair.access_token);
    return claims && { ...pair, expires_in: claims.exp - now, refresh_expires_in: refreshSeconds };
  }

  /** The pair for a retry. An access token that has expired or was revoked is signed anew; no stored expiry moves. */
  async function repeat(client: Client, pair: TokenPair, found: PresentedToken) {
    const active = await ifActive(pair, found.secondsLeft);
    if (active) return active;
    const scopes = permittedTo(client, { scopes: pair.scope?.split(" ") ?? [] });
    const signed = await tokenIssuer.signAccessToken({ ...found, client, scopes });
    return ifActive({ ...pair, ...signed }, found.secondsLeft);
  }

  /** The pair for a retry of a bound token; undefined if it comes too late for the third time in a row. */
  async function repeatBound(
    client: Client,
    { token, requestId }: PresentedParts,
    found: PresentedToken & { readonly sealedSuccessor: Buffer },
    scopes: readonly string[],
  ) {
    const origin = { requestId, caller: client.clientId };
    if (found.isLate && (await noteLateRepeat(db, token, origin))) return undefined;
    const rotating = Buffer.from(unseal(token.rotating, found.sealedSuccessor), "base64url");
    const refreshToken = { ...token, rotating };
    const pair = await tokenIssuer.signPair({ client, identityId: found.identityId, refreshToken, scopes });
    return ifActive(pair, found.secondsLeft);
  }

  async function find(presented: RefreshToken): Promise<PresentedToken | undefined> {
    const found = await confirmed.confirmFound(() => findPresented(presented), wasEndedOrReplaced);
    // From the refusal the client learns that the authorization has ended.
    if (found?.state === "REVOKED") await confirmed.untilStandbysKnow();
    return found;
  }

  async function exchange(client: Client, request: PresentedParts): Promise<TokenPair | undefined> {
    const { token: presented, keyThumbprint, chooseScopes, requestId } = request;
    // The second round is for a request that lost the race to rotate: by then the winner's pair is stored. After reuse,
    // or where the authorization ends during the first one, it finds that it has ended.
    for (let round = 0; round < 2; round += 1) {
      const found = await find(presented);
      if (found?.state !== "ACTIVE" || !isHeldBy(found, client, keyThumbprint)) return undefined;
      const permitted = permittedTo(client, found);
      let pair: TokenPair | undefined;
      if (found.isCurrent) {
        pair = await rotate(client, presented, found, chooseScopes(permitted));
      } else if (found.sealedSuccessor) {
        const { sealedSuccessor } = found;
        pair = await repeatBound(client, request, { ...found, sealedSuccessor }, chooseScopes(permitted));
      } else if (found.sealedPair) {
        // A retry gets the same scopes whatever scope it requests; but a scope that is not permitted is refused.
        chooseScopes(permitted);
        pair = await repeat(client, JSON.parse(unseal(presented.rotating, found.sealedPair)), found);
      } else {
        const origin = { requestId, caller: client.clientId };
        await endAuthorization(db, found.authorizationId, "REUSE", origin, isReuse(presented));
      }
      if (pair) return pair;
    }
    // The last round may have ended the authorization.
    await confirmed.untilStandbysKnow();
    return undefined;
  }

  return async (client, presented) => {
    const token = decodeRefreshToken(presented.token);
    if (!token) return undefined;
    const request = { ...presented, token };
    const pair = await rotateRemembered(client, request);
    return pair ?? exchange(client, request);
  };
}

/**
 * Whether the authorization is the client's, its tokens are bound to the key that was proven, or to none, and the client
 * may still act for whom it acts.
 */
function isHeldBy(
  { clientId, keyThumbprint, asClient }: AuthorizationFacts,
  client: Client,
  proven: string | undefined,
): boolean {
  const isClients = clientId === client.clientId && keyThumbprint === proven;
  return isClients && (asClient === undefined || mayActAs(client, asClient));
}

/** Whether another request has ended the authorization, or replaced the token with the pair that this one would get. */
function wasEndedOrReplaced(outcome: PromiseSettledResult<PresentedToken | undefined>): boolean {
  const found = outcome.status === "fulfilled" ? outcome.value : undefined;
  if (found?.state !== "ACTIVE") return found?.state === "REVOKED";
  return found.sealedPair !== undefined || found.sealedSuccessor !== undefined;
}

/** The scopes of the authorization that the client is still permitted to have. */
function permittedTo(client: Client, { scopes }: Pick<AuthorizationFacts, "scopes">): string[] {
  return scopes.filter((scope) => client.scopes.includes(scope));
}
