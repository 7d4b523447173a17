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
 * 8. The database's clock decides, in the statement that decides: a pause of a process, or of the database, is
 *    never taken for reuse.
 */
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Client } from "../clients/client-repository.ts";
import type { Confirmed } from "./confirmed.ts";
import type { AuthorizationFacts, CurrentTokens } from "./current-tokens.ts";
import { endAuthorization } from "./end-authorizations.ts";
import type { Introspect } from "./introspect.ts";
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

/** Exchanges a refresh token for the next pair; undefined if it is not valid for this client. @param requestId for events */
export type RotateRefreshToken = (
  client: Client,
  token: string,
  chooseScopes: ScopeChoice,
  requestId: string,
) => Promise<TokenPair | undefined>;

export function createRotateRefreshToken(dependencies: Dependencies): RotateRefreshToken {
  const { db, clock, currentTokens, findPresented, rotations } = dependencies;
  const { tokenIssuer, introspect, confirmed } = dependencies;

  async function rotate(
    client: Client,
    presented: RefreshToken,
    authorization: AuthorizationFacts,
    scopes: readonly string[],
  ): Promise<TokenPair | undefined> {
    const { identityId } = authorization;
    const next = newRefreshToken(presented.authorizationId, presented.family);
    const pair = await tokenIssuer.signPair({ client, identityId, refreshToken: next, scopes });
    const sealedPair = seal(presented.rotating, JSON.stringify(pair));
    const lifetimes = client.tokenSettings;
    if (!(await rotations.rotate({ presented, next, sealedPair, lifetimes }))) return undefined;
    currentTokens.remember(next, authorization);
    return pair;
  }

  /** Rotates without a look-up. Undefined if the token is not remembered, or if a look-up must decide what is wrong. */
  async function rotateRemembered(client: Client, presented: RefreshToken, chooseScopes: ScopeChoice) {
    const remembered = currentTokens.take(presented);
    if (remembered?.clientId !== client.clientId) return undefined;
    let scopes: readonly string[];
    try {
      scopes = chooseScopes(permittedTo(client, remembered));
    } catch {
      // A refusal of the scope comes after one of the token, which the look-up decides.
      return undefined;
    }
    return rotate(client, presented, remembered, scopes);
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

  async function find(presented: RefreshToken): Promise<PresentedToken | undefined> {
    const found = await confirmed.confirmFound(() => findPresented(presented), wasEndedOrReplaced);
    // From the refusal the client learns that the authorization has ended.
    if (found?.state === "REVOKED") await confirmed.untilStandbysKnow();
    return found;
  }

  async function exchange(
    client: Client,
    presented: RefreshToken,
    chooseScopes: ScopeChoice,
    requestId: string,
  ): Promise<TokenPair | undefined> {
    // The second round is for a request that lost the race to rotate: by then the winner's pair is stored. After reuse,
    // or where the authorization ends during the first one, it finds that it has ended.
    for (let round = 0; round < 2; round += 1) {
      const found = await find(presented);
      if (found?.state !== "ACTIVE" || found.clientId !== client.clientId) return undefined;
      const permitted = permittedTo(client, found);
      let pair: TokenPair | undefined;
      if (found.isCurrent) {
        pair = await rotate(client, presented, found, chooseScopes(permitted));
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

  return async (client, token, chooseScopes, requestId) => {
    const presented = decodeRefreshToken(token);
    if (!presented) return undefined;
    const pair = await rotateRemembered(client, presented, chooseScopes);
    return pair ?? exchange(client, presented, chooseScopes, requestId);
  };
}

/** Whether another request has ended the authorization, or replaced the token with the pair that this one would get. */
function wasEndedOrReplaced(outcome: PromiseSettledResult<PresentedToken | undefined>): boolean {
  const found = outcome.status === "fulfilled" ? outcome.value : undefined;
  return found?.state === "REVOKED" || (found?.state === "ACTIVE" && found.sealedPair !== undefined);
}

/** The scopes of the authorization that the client is still permitted to have. */
function permittedTo(client: Client, { scopes }: Pick<AuthorizationFacts, "scopes">): string[] {
  return scopes.filter((scope) => client.scopes.includes(scope));
}
