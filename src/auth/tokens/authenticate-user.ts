/** A user as the caller of an operation about himself: by an access token that says so. */
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import type { Introspect } from "./introspect.ts";

export interface UserCaller {
  readonly kind: "user";
  /** The client that the token was issued to. */
  readonly clientId: string;
  readonly identityId: string;
  /** The authorization that the token is from. */
  readonly authorizationId: string;
}

/** The scope of tokens with which a user may see and end his authorizations. */
const sessionsScope = "sessions";

/** The credentials of RFC 6750 section 2.1, with one space; the scheme is case-insensitive (RFC 9110 section 11.1). */
const bearer = /^bearer ([A-Za-z0-9._~+/-]+=*)$/i;

/**
 * The user of the access token in an Authorization header; undefined if it is missing or not active.
 * @throws forbidden if the token does not have the scope, or is of a client that acts for no user
 */
export async function authenticateUser(
  introspect: Introspect,
  authorization: string | undefined,
): Promise<UserCaller | undefined> {
  const [, token] = bearer.exec(authorization ?? "") ?? [];
  const claims = token === undefined ? undefined : await introspect(token);
  if (!claims) return undefined;
  const { client_id: clientId, sub: identityId, sid: authorizationId, scope = "" } = claims;
  if (claims.gty === undefined && scope.split(" ").includes(sessionsScope))
    return { kind: "user", clientId, identityId, authorizationId };
  const detail = `This operation needs a user's access token with the scope ${sessionsScope}, which the scopes of its client in OAUTH_SERVER_CLIENTS have to list.`;
  throw new ServiceError(ErrorKinds.forbidden, detail);
}
