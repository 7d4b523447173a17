/**
 * The grants of the token endpoint. Every request passes one pipeline (generate-tokens.ts): parse, client,
 * permission, parameters, attempts, grant, issue. A grant is a small object that only declares its parameters
 * and authenticates the subject, so no grant can omit a check.
 */
import type { RequestContext } from "../../platform/base/request-context.ts";
import type { Client } from "../clients/client.ts";
import type { AttemptLimit } from "../limits/attempts.ts";
import type { TokenPair } from "../tokens/token-issuer.ts";

/** The parameters of the contract that grants use. */
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

/** How guessing is limited. */
export interface Guessing {
  readonly limit: AttemptLimit;
  /** The account that is guessed at, in its canonical spelling. */
  account(parameters: TokenParameters): string;
}

export interface Grant {
  /** Required parameters. */
  readonly requires: readonly (keyof TokenParameters)[];
  /** For grants whose input can be guessed. */
  readonly guessing?: Guessing;
  /** Exchanges the presented grant for tokens; undefined means `invalid_grant`. */
  redeem(request: TokenRequest): Promise<TokenPair | undefined>;
}
