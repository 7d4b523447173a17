/** Issues token pairs. The tokens are made here, the authorization in create-authorization.ts. */
import { type Clock, unixSeconds } from "../../platform/base/clock.ts";
import { uuidv7 } from "../../platform/crypto/uuid.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Client } from "../clients/client.ts";
import { type AccessTokens, newJti } from "./access-token.ts";
import { type AuthenticatedSubject, createCreateAuthorization } from "./create-authorization.ts";
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

interface PairRequest {
  readonly client: Client;
  readonly identityId: string;
  readonly refreshToken: RefreshToken;
  readonly scopes: readonly string[];
}

export interface TokenIssuer {
  /** Creates an authorization and its first pair; undefined if a condition of the subject no longer holds. */
  authorize(
    client: Client,
    grantType: string,
    subject: AuthenticatedSubject,
    scopes: readonly string[],
  ): Promise<TokenPair | undefined>;
  /** A pair for an authorization that exists. Stores nothing. */
  signPair(request: PairRequest): Promise<TokenPair>;
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

  async function pair({ client, identityId, refreshToken, scopes }: PairRequest): Promise<TokenPair> {
    const { accessTokenSeconds, refreshTokenSeconds } = client.tokenSettings;
    const iat = unixSeconds(clock);
    const scope = scopes.length > 0 ? scopes.join(" ") : undefined;
    const access_token = await accessTokens.sign({
      iss: issuer,
      sub: identityId,
      aud: [...new Set([client.clientId, ...client.clientSettings.audiences])],
      exp: iat + accessTokenSeconds,
      nbf: iat,
      iat,
      jti: newJti(refreshToken.authorizationId),
      client_id: client.clientId,
      scope,
    });
    return {
      access_token,
      refresh_token: encodeRefreshToken(refreshToken),
      token_type: "Bearer",
      expires_in: accessTokenSeconds,
      refresh_expires_in: refreshTokenSeconds,
      scope,
    };
  }

  return {
    signPair: pair,

    async authorize(client, grantType, subject, scopes) {
      const { identityId } = subject;
      const refreshToken = newRefreshToken(uuidv7(clock.now()));
      // Sign before storing: a crash between the two leaves no authorization without a pair.
      const issued = await pair({ client, identityId, refreshToken, scopes });
      const authorization = { client, grantType, subject, scopes, refreshToken };
      if (!(await createAuthorization(authorization))) return undefined;
      const { clientId } = client;
      currentTokens.remember(refreshToken, { clientId, identityId, scopes });
      return issued;
    },
  };
}
