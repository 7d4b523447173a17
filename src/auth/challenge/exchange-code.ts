import type { Client } from "../clients/client-repository.ts";
import type { Identities } from "../identities/identities.ts";
import type { Confirmed } from "../tokens/confirmed.ts";
import type { AuthenticatedSubject } from "../tokens/create-authorization.ts";
import type { Description } from "../tokens/description.ts";
import type { FindPresented } from "../tokens/presented-token.ts";
import type { RefreshToken } from "../tokens/refresh-token.ts";
import type { TokenIssuer, TokenPair } from "../tokens/token-issuer.ts";
import type { AuthorizationCodes, EndedChallenge } from "./authorization-codes.ts";
import { type FindPhoneHolder, signUp } from "./phone-holder.ts";

interface Dependencies {
  readonly authorizationCodes: AuthorizationCodes;
  readonly findPhoneHolder: FindPhoneHolder;
  readonly identities: Identities;
  readonly tokenIssuer: TokenIssuer;
  readonly findPresented: FindPresented;
  readonly confirmed: Confirmed;
}

/** What an app presents to exchange a code. */
interface Presented {
  readonly code: string;
  readonly codeVerifier: string;
  /** Of the key that it has proven; undefined: none. */
  readonly keyThumbprint: string | undefined;
  readonly description: Description;
}

/**
 * Exchanges an authorization code for a pair that is bound to the app's key; undefined if it is not valid, or if the
 * identity, its phone or its generation is not that of the challenge any more. Of any number of uses one authorization
 * comes, and one refresh token.
 */
export type ExchangeCode = (client: Client, presented: Presented) => Promise<TokenPair | undefined>;

export function createExchangeCode(dependencies: Dependencies): ExchangeCode {
  const { authorizationCodes, findPhoneHolder, identities, tokenIssuer } = dependencies;
  const { findPresented, confirmed } = dependencies;

  async function subjectOf(
    { clientSettings }: Client,
    { phone, identityId: holder, identityGeneration, refreshToken }: EndedChallenge,
  ): Promise<AuthenticatedSubject | undefined> {
    let identityId = holder ?? undefined;
    // A repeat makes no identity: the first time has, and it may be gone by now, or have another phone.
    if (holder === null && clientSettings.signUp && !(await findPresented(refreshToken)))
      identityId = await signUp(identities, findPhoneHolder, phone);
    return identityId === undefined ? undefined : { identityId, identityGeneration, phone };
  }

  /** The pair of an exchange that has been made before: perhaps its response was lost. */
  async function repeat(client: Client, refreshToken: RefreshToken, scopes: readonly string[]) {
    const found = await confirmed.confirmFound(
      () => findPresented(refreshToken),
      (outcome) => outcome.status === "fulfilled" && outcome.value !== undefined,
    );
    if (found?.state === "REVOKED") await confirmed.untilStandbysKnow();
    if (found?.state !== "ACTIVE" || !found.isCurrent) return undefined;
    const { identityId, secondsLeft } = found;
    const pair = await tokenIssuer.signPair({ client, identityId, refreshToken, scopes });
    return { ...pair, refresh_expires_in: secondsLeft };
  }

  return async (client, { code, codeVerifier, keyThumbprint, description }) => {
    if (keyThumbprint === undefined) return undefined;
    const { clientId } = client;
    const challenge = await authorizationCodes.exchange({ code, codeVerifier, clientId, keyThumbprint });
    if (!challenge) return undefined;
    const subject = await subjectOf(client, challenge);
    const { refreshToken, scopes: requested } = challenge;
    const scopes = client.scopes.filter((scope) => requested?.includes(scope) ?? true);
    const grantType = "authorization_code";
    const granted = { client, grantType, scopes, description, refreshToken, keyThumbprint };
    const pair = subject && (await tokenIssuer.authorize({ ...granted, subject }));
    return pair ?? repeat(client, refreshToken, scopes);
  };
}
