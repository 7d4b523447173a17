/** Issues token pairs. The tokens are made here, the authorization in create-authorization.ts. */
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import { uuidv7 } from "../../platform/crypto/random.ts";
import type { Database } from "../../platform/database/database.ts";
import type { AsClient } from "../clients/as-client.ts";
import type { Client } from "../clients/client-repository.ts";
import { type AccessTokens, newJti } from "./access-token.ts";
import { createCreateAuthorization, type NewAuthorization } from "./create-authorization.ts";
import type { CurrentTokens } from "./current-tokens.ts";
import { encodeRefreshToken, newRefreshToken, type RefreshToken } from "./refresh-token.ts";

/** The response of the token operation, with the names of the contract. Lifetimes are in seconds. */
export interface TokenPair {
  access_token: string;
  refresh_token: string;
  token_type: "Bearer";
  expires_in: number;
  refresh_expires_in: number;
  /** Space-separated; absent if the access token has none. */
  scope: string | undefined;
}

interface AccessTokenRequest {
  readonly client: Client;
  readonly identityId: string;
  readonly authorizationId: string;
  readonly scopes: readonly string[];
  /** Whom the client acts for; undefined: for the user. */
  readonly asClient?: AsClient | undefined;
}

interface PairRequest extends Omit<AccessTokenRequest, "authorizationId"> {
  readonly refreshToken: RefreshToken;
}

/** A new authorization; with its first refresh token, where another is not to be made. */
type AuthorizationRequest = Omit<NewAuthorization, "refreshToken"> &
  Partial<Pick<NewAuthorization, "refreshToken">>;

export interface TokenIssuer {
  /** Creates an authorization and its first pair; undefined if a condition of the subject no longer holds. */
  authorize(request: AuthorizationRequest): Promise<TokenPair | undefined>;
  /** A pair for an authorization that exists. Stores nothing. */
  signPair(request: PairRequest): Promise<TokenPair>;
  /** An access token for an authorization that exists, as the members of a pair. Stores nothing. */
  signAccessToken(
    request: AccessTokenRequest,
  ): Promise<Pick<TokenPair, "access_token" | "expires_in" | "scope">>;
}

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  readonly accessTokens: AccessTokens;
  readonly currentTokens: CurrentTokens;
  readonly issuer: string;
}

export function createTokenIssuer(dependencies: Dependencies): TokenIssuer {
  const { db, clock, accessTokens, currentTokens, issuer } = dependencies;
  const createAuthorization = createCreateAuthorization(db);

  async function signAccessToken(request: AccessTokenRequest) {
    const { client, identityId, authorizationId, scopes, asClient } = request;
    const { accessTokenSeconds } = client.tokenSettings;
    const iat = unixSeconds(clock);
    const scope = scopes.length > 0 ? scopes.join(" ") : undefined;
    const access_token = await accessTokens.sign({
      iss: issuer,
      sub: identityId,
      aud: [...new Set([client.clientId, ...client.clientSettings.audiences])],
      exp: iat + accessTokenSeconds,
      nbf: iat,
      iat,
      jti: newJti(authorizationId),
      sid: authorizationId,
      client_id: client.clientId,
      scope,
      gty: asClient && "client_credentials",
      org_id: asClient?.organizationId ?? undefined,
    });
    return { access_token, expires_in: accessTokenSeconds, scope };
  }

  async function signPair({ refreshToken, ...request }: PairRequest): Promise<TokenPair> {
    const { authorizationId } = refreshToken;
    const { access_token, expires_in, scope } = await signAccessToken({ ...request, authorizationId });
    return {
      access_token,
      refresh_token: encodeRefreshToken(refreshToken),
      token_type: "Bearer",
      expires_in,
      refresh_expires_in: request.client.tokenSettings.refreshTokenSeconds,
      scope,
    };
  }

  return {
    signPair,
    signAccessToken,

    async authorize(request) {
      const { client, subject, scopes, keyThumbprint } = request;
      const { identityId, asClient } = subject;
      const { refreshToken = newRefreshToken(uuidv7(clock.now())) } = request;
      // Sign before storing: a crash between the two leaves no authorization without a pair.
      const issued = await signPair({ client, identityId, refreshToken, scopes, asClient });
      if (!(await createAuthorization({ ...request, refreshToken }))) return undefined;
      const { clientId } = client;
      currentTokens.remember(refreshToken, { clientId, identityId, scopes, asClient, keyThumbprint });
      return issued;
    },
  };
}
