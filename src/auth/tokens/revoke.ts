import { sql } from "drizzle-orm";
import { ServiceError } from "../../platform/base/errors.ts";
import { confirmUnless } from "../../platform/database/confirm.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { originFields, type RequestOrigin } from "../../platform/messaging/outbox.ts";
import type { Caller } from "../clients/authenticate-client.ts";
import { AuthErrorKinds } from "../errors.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { authorizations, revokedAccessTokens } from "../schema.ts";
import type { AccessTokenClaims, AccessTokens } from "./access-token.ts";
import type { Confirmed } from "./confirmed.ts";
import { endAuthorization } from "./end-authorizations.ts";
import type { FindPresented } from "./presented-token.ts";
import { decodeRefreshToken } from "./refresh-token.ts";

/**
 * Revokes a token (RFC 7009, except that an invalid token is an error). Once it returns, no process reports the token
 * as active. Revoking a refresh token ends its authorization, revoking an access token only that token.
 */
export type Revoke = (caller: Caller, token: string, origin: RequestOrigin) => Promise<void>;

interface Dependencies {
  readonly db: Database;
  readonly accessTokens: AccessTokens;
  readonly findPresented: FindPresented;
  readonly confirmed: Confirmed;
}

export function createRevoke({ db, accessTokens, findPresented, confirmed }: Dependencies): Revoke {
  async function revokeRefreshToken(caller: Caller, text: string, origin: RequestOrigin): Promise<boolean> {
    const token = decodeRefreshToken(text);
    const found = token && (await findPresented(token));
    if (!found || found.state === "EXPIRED") return false;
    // No proof is sent here. A token of before the last one, from an old backup, must not sign the app's user out.
    if (found.keyThumbprint !== undefined && !found.isCurrent && !found.sealedSuccessor) return false;
    refuseOthers(caller, found.clientId);
    await endAuthorization(db, found.authorizationId, "CLIENT", origin);
    return true;
  }

  async function revokeAccessToken(caller: Caller, text: string, origin: RequestOrigin): Promise<boolean> {
    const claims = await accessTokens.verify(text);
    if (!claims) return false;
    refuseOthers(caller, claims.client_id);
    await storeRevocation(db, claims, origin);
    return true;
  }

  return async (caller, token, origin) => {
    // The wait is needed also if another request has revoked the token: its response may not have been sent yet.
    if (await revokeRefreshToken(caller, token, origin)) return confirmed.untilStandbysKnow();
    if (await revokeAccessToken(caller, token, origin)) return confirmed.untilStandbysKnow();
    throw new ServiceError(AuthErrorKinds.invalidToken, "The token is unknown, expired or malformed.");
  };
}

const revoked = names(revokedAccessTokens);
const authorization = names(authorizations, "a");

/**
 * Stores the revocation of one access token and writes its event, the first time and while its authorization is not
 * marked as revoked, in one statement.
 */
async function storeRevocation(
  db: Database,
  { sub, jti, sid: authorizationId, client_id, exp }: AccessTokenClaims,
  origin: RequestOrigin,
): Promise<void> {
  const fields = {
    identityId: sql`${sub}::text`,
    authorizationId: sql`${authorizationId}::text`,
    clientId: sql`${client_id}::text`,
    jti: sql`${jti}::text`,
    ...originFields(origin),
  };
  const fromUnmarked = sql`from revoked, ${authorizations} a
    where ${authorization.id} = ${authorizationId}::uuid and ${authorization.revokedAt} is null`;
  const record = recordEvent(AuthEvents.tokenRevoked, fields, {
    at: sql`clock_timestamp()`,
    from: fromUnmarked,
  });
  await db.execute(sql`
    with revoked as (
      insert into ${revokedAccessTokens} (${revoked.jti}, ${revoked.expiresAt})
      values (${jti}, to_timestamp(${exp}::float8))
      on conflict do nothing
      returning 1 as one
    ), recorded as (${record})
    select ${confirmUnless(sql`exists (select from revoked)`)}`);
}

function refuseOthers(caller: Caller, clientId: string): void {
  if (caller.kind === "internal") return;
  if ((caller.kind === "client" || caller.kind === "public") && caller.clientId === clientId) return;
  throw new ServiceError(
    AuthErrorKinds.unauthorizedClient,
    "The token was issued to another client, which alone may revoke it.",
  );
}
