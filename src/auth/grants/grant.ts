/**
 * The grants of the token endpoint. Every request goes through one pipeline (generate-tokens.ts): parse,
 * client, permission, parameters, attempts, grant, issue. A grant is a small object that only says what it
 * needs and whom it establishes, so none can forget a check.
 */
import type { RequestContext } from "../../platform/base/request-context.ts";
import type { Client } from "../clients/client.ts";
import type { AttemptLimit } from "../limits/attempts.ts";
import type { TokenPair } from "../tokens/token-issuer.ts";

/** Parameters that a grant may read, of those the contract names. */
export interface TokenParameters {
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly refresh_token?: string | undefined;
  readonly phone?: string | undefined;
  readonly auth_id?: string | undefined;
  readonly otp_verification_token?: string | undefined;
  readonly scope?: string | undefined;
}

/** A parsed token request of a client that may use the grant. */
export interface TokenRequest {
  readonly client: Client;
  readonly parameters: TokenParameters;
  readonly context: RequestContext;
  /** The requested scopes if all of them are among `permitted`, or all of `permitted`; throws invalid_scope. */
  chooseScopes(permitted: readonly string[]): readonly string[];
}

/** What guessing is limited on. */
export interface Guessing {
  readonly limit: AttemptLimit;
  /** The account in one canonical spelling. */
  account(parameters: TokenParameters): string;
}

export interface Grant {
  /** Parameters without which the request is invalid. */
  readonly requires: readonly (keyof TokenParameters)[];
  /** For grants whose input can be guessed. */
  readonly guessing?: Guessing;
  /** Exchanges what was presented for tokens; undefined for the one answer `invalid_grant`. */
  redeem(request: TokenRequest): Promise<TokenPair | undefined>;
}
