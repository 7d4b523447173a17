import { invalidInput, ServiceError } from "../../platform/base/errors.ts";
import type { RequestContext } from "../../platform/base/request-context.ts";
import { type GrantType, grantTypes } from "../client-settings.ts";
import type { Caller } from "../clients/authenticate-client.ts";
import type { Client } from "../clients/client-repository.ts";
import { AuthErrorKinds, invalidGrant } from "../errors.ts";
import type { TokenPair } from "../tokens/token-issuer.ts";
import type { Grant, TokenParameters, TokenRequest } from "./grant.ts";

/** The body of a token request; members beyond the known ones are ignored. */
type TokenBody = TokenParameters & { readonly grant_type: string };

/** The outcomes of a token request that passed the checks before its grant. */
export const tokenOutcomes = ["issued", "refused"] as const;

interface Dependencies {
  readonly grants: Readonly<Record<GrantType, Grant>>;
  /** Counts a request that its grant has decided. */
  readonly countOutcome: (grantType: GrantType, outcome: (typeof tokenOutcomes)[number]) => void;
}

export type GenerateTokens = (caller: Caller, body: TokenBody, context: RequestContext) => Promise<TokenPair>;

/** Creates the pipeline for token requests of every grant type. */
export function createGenerateTokens({ grants, countOutcome }: Dependencies): GenerateTokens {
  return async (caller, body, context) => {
    const { grant_type, ...parameters } = body;
    const grantType = grantTypes.find((type) => type === grant_type);
    if (!grantType) {
      const message = `grant_type must be one of ${grantTypes.join(", ")}.`;
      throw new ServiceError(AuthErrorKinds.unsupportedGrantType, message);
    }
    const client = permittedClient(caller, grantType);
    const grant = grants[grantType];
    requireParameters(grant, grantType, parameters);
    const request: TokenRequest = {
      client,
      parameters,
      context,
      chooseScopes: (permitted) => chooseScopes(parameters.scope, permitted),
    };
    const pair = await grant.redeem(request);
    countOutcome(grantType, pair ? "issued" : "refused");
    if (!pair) throw invalidGrant();
    return pair;
  };
}

function permittedClient(caller: Caller, grantType: GrantType): Client {
  if (caller.kind === "client" && caller.client.grantTypes.includes(grantType)) return caller.client;
  throw new ServiceError(
    AuthErrorKinds.unauthorizedClient,
    `This client may not use grant_type=${grantType}.`,
  );
}

function requireParameters({ requires }: Grant, grantType: GrantType, parameters: TokenParameters): void {
  const missing = requires.filter((name) => parameters[name] === undefined);
  if (missing.length === 0) return;
  const message = `is required for grant_type=${grantType}`;
  throw invalidInput(missing.map((name) => ({ pointer: `/body/${name}`, message })));
}

/** scope-token of RFC 6749 section 3.3. */
const scopeToken = /^[\x21\x23-\x5b\x5d-\x7e]+$/;

function chooseScopes(requested: string | undefined, permitted: readonly string[]): readonly string[] {
  if (requested === undefined) return permitted;
  const scopes = [...new Set(requested.split(" ").filter((scope) => scope !== ""))];
  const refused = scopes.find((scope) => !scopeToken.test(scope) || !permitted.includes(scope));
  if (refused === undefined && scopes.length > 0) return scopes;
  throw new ServiceError(
    AuthErrorKinds.invalidScope,
    "The scope asks for more than is permitted, or is malformed.",
  );
}
