/**
 * The grants of the token endpoint: generate-tokens.ts checks a request, the grant redeems it, and grants.ts limits
 * guesses.
 */
import type { RequestContext } from "../../platform/base/request-context.ts";
import type { Client } from "../clients/client-repository.ts";
import type { Description } from "../tokens/description.ts";
import type { TokenPair } from "../tokens/token-issuer.ts";

/** The parameters of the contract that grants use. */
export interface TokenParameters {
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly refresh_token?: string | undefined;
  readonly phone?: string | undefined;
  readonly auth_id?: string | undefined;
  readonly otp_verification_token?: string | undefined;
  readonly code?: string | undefined;
  readonly code_verifier?: string | undefined;
  readonly organization?: string | undefined;
  readonly scope?: string | undefined;
  readonly device_name?: string | undefined;
  readonly metadata?: string | undefined;
}

/** A parsed token request of a client that may use the grant. */
export interface TokenRequest {
  readonly client: Client;
  /** Of the key that a client without a secret has proven; undefined for others. */
  readonly keyThumbprint: string | undefined;
  readonly parameters: TokenParameters;
  readonly context: RequestContext;
  /** What the client says of the authorization, where one is granted. */
  readonly description: Description;
  /** The requested scopes if all of them are among `permitted`, or all of `permitted`; throws invalid_scope. */
  chooseScopes(permitted: readonly string[]): readonly string[];
}

export interface Grant {
  /** Required parameters. */
  readonly requires: readonly (keyof TokenParameters)[];
  /** Exchanges the presented grant for tokens; undefined means `invalid_grant`. */
  redeem(request: TokenRequest): Promise<TokenPair | undefined>;
}
