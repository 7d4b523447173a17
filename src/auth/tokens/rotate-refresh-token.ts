/**
 * Refresh token rotation (RFC 9700 section 4.14). Its guarantees:
 *
 * 1. Rotation updates the row of the authorization and adds no rows.
 * 2. The database holds no token that works.
 * 3. A retry within the grace window gets the same pair; n concurrent requests rotate once.
 * 4. A replaced token presented after its window ends the authorization, and an event reports it.
 * 5. A forged or garbled token has no effect.
 * 6. After a crash at any point, the client either has the new pair or gets it by a retry: the new pair is
 *    stored, encrypted under the presented token, in the statement that makes it valid.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Client } from "../clients/client.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import {
  type Authorization,
  type AuthorizationRepository,
  rotate,
  stateOf,
} from "./authorization-repository.ts";
import { expiriesOf } from "./create-authorization.ts";
import { endAuthorizations } from "./end-authorizations.ts";
import {
  decodeRefreshToken,
  hashPart,
  matchesHash,
  newRefreshToken,
  type RefreshToken,
  seal,
  unseal,
} from "./refresh-token.ts";
import type { TokenIssuer, TokenPair } from "./token-issuer.ts";

/**
 * Replaced tokens of one authorization whose window may be open at once. None is dropped, as a retry with it
 * must get its pair: a client that refreshes faster has to wait until the oldest window closes.
 */
const maxSuperseded = 60;

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly authorizations: AuthorizationRepository;
  readonly issuer: TokenIssuer;
}

/** Chooses the scopes of the new access token from those of the authorization; throws to refuse. */
type ScopeChoice = (permitted: readonly string[]) => readonly string[];

/** Exchanges a refresh token for the next pair; undefined if it is not valid for this client. */
export type RotateRefreshToken = (
  client: Client,
  token: string,
  chooseScopes: ScopeChoice,
) => Promise<TokenPair | undefined>;

export function createRotateRefreshToken(dependencies: Dependencies): RotateRefreshToken {
  const { db, clock, issuer } = dependencies;

  async function rotateNow(
    client: Client,
    authorization: Authorization,
    presented: RefreshToken,
    chooseScopes: ScopeChoice,
  ): Promise<TokenPair | undefined> {
    const now = clock.now();
    const next = newRefreshToken(presented.authorizationId, presented.family);
    const scopes = chooseScopes(permittedScopes(authorization, client));
    const open = withinWindow(authorization, client, now);
    const oldest = open[maxSuperseded - 1];
    if (oldest) throw tooManyRefreshes(oldest.at + client.tokenSettings.refreshGraceSeconds * 1000 - now);
    const pair = await issuer.signPair({
      client,
      identityId: authorization.identityId,
      refreshToken: next,
      scopes,
    });
    const replaced = {
      hash: hashPart(presented.rotating).toString("base64url"),
      at: now,
      sealed: seal(presented.rotating, JSON.stringify(pair)),
    };
    const expiries = expiriesOf(client, now);
    const rotated = await rotate(db, authorization, {
      refreshHash: hashPart(next.rotating),
      superseded: [replaced, ...open],
      expiresAt: expiries.refresh,
      accessExpiresAt: expiries.access,
      now: new Date(now),
    });
    return rotated ? pair : undefined;
  }

  async function endReused(authorization: Authorization): Promise<void> {
    const now = new Date(clock.now());
    await db.transaction(async (tx) => {
      const ended = await endAuthorizations(tx, { id: authorization.id }, "REUSE", now);
      if (ended === 0) return;
      const { id, identityId, clientId } = authorization;
      const fields = {
        identityId: sql`${identityId}::text`,
        authorizationId: sql`${id}::text`,
        clientId: sql`${clientId}::text`,
      };
      await tx.execute(recordEvent(AuthEvents.authorizationReuseDetected, fields, now));
    });
  }

  /** The active authorization that the token belongs to, if it was issued to this client. */
  async function authorizationFor(
    client: Client,
    presented: RefreshToken,
  ): Promise<Authorization | undefined> {
    const found = await dependencies.authorizations.find(presented.authorizationId);
    if (!found || !matchesHash(presented.family, found.familyHash)) return undefined;
    if (found.clientId !== client.clientId) return undefined;
    return stateOf(found, clock.now()) === "ACTIVE" ? found : undefined;
  }

  return async (client, token, chooseScopes) => {
    const presented = decodeRefreshToken(token);
    if (!presented) return undefined;
    // The second round is for a request that lost the race to rotate: by then the winner's pair is stored.
    for (let round = 0; round < 2; round += 1) {
      const authorization = await authorizationFor(client, presented);
      if (!authorization) return undefined;
      if (!matchesHash(presented.rotating, authorization.refreshHash)) {
        const retried = successorOf(authorization, client, presented, clock.now());
        if (!retried) await endReused(authorization);
        // A retry gets the same pair whatever scope it requests; but a scope that is not permitted is refused.
        else chooseScopes(permittedScopes(authorization, client));
        return retried;
      }
      const pair = await rotateNow(client, authorization, presented, chooseScopes);
      if (pair) return pair;
    }
    return undefined;
  };
}

/** The scopes of the authorization that the client is still permitted to have. */
function permittedScopes(authorization: Authorization, client: Client): string[] {
  return authorization.scopes.filter((scope) => client.scopes.includes(scope));
}

function tooManyRefreshes(waitMs: number): ServiceError {
  const seconds = Math.max(1, Math.ceil(waitMs / 1000));
  const detail = `This authorization is refreshed too often. Wait ${seconds} seconds and try again.`;
  return new ServiceError(ErrorKinds.tooManyRequests, detail, { retryAfterSeconds: seconds });
}

function withinWindow(
  { superseded }: Authorization,
  client: Client,
  now: number,
): Authorization["superseded"] {
  const opened = now - client.tokenSettings.refreshGraceSeconds * 1000;
  return superseded.filter(({ at }) => at > opened);
}

/** The pair that replaced the presented token; undefined if its window has closed. */
function successorOf(
  authorization: Authorization,
  client: Client,
  presented: RefreshToken,
  now: number,
): TokenPair | undefined {
  const hash = hashPart(presented.rotating).toString("base64url");
  const entry = withinWindow(authorization, client, now).find((one) => one.hash === hash);
  return entry && JSON.parse(unseal(presented.rotating, entry.sealed));
}
