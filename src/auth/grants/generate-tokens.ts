import { invalidInput, ServiceError } from "../../platform/base/errors.ts";
import type { RequestContext } from "../../platform/base/request-context.ts";
import { allGrantTypes, type GrantType, grantTypes } from "../client-settings.ts";
import type { Caller } from "../clients/authenticate-client.ts";
import { chooseScopes } from "../clients/choose-scopes.ts";
import type { Client } from "../clients/client-repository.ts";
import { AuthErrorKinds, invalidGrant } from "../errors.ts";
import type { VerifyProof } from "../proofs/proof.ts";
import { readDescription } from "../tokens/description.ts";
import type { TokenPair } from "../tokens/token-issuer.ts";
import type { Grant, TokenParameters, TokenRequest } from "./grant.ts";

/** The body of a token request; members beyond the known ones are ignored. */
type TokenBody = TokenParameters & { readonly grant_type: string };

/** The outcomes of a token request that passed the checks before its grant. */
export const tokenOutcomes = ["issued", "refused"] as const;

interface Dependencies {
  readonly grants: Readonly<Record<GrantType, Grant>>;
  readonly verifyProof: VerifyProof;
  /** Counts a request that its grant has decided. */
  readonly countOutcome: (grantType: GrantType, outcome: (typeof tokenOutcomes)[number]) => void;
}

/** @param proof the header DPoP, which is read for clients without a secret only */
export type GenerateTokens = (
  caller: Caller,
  body: TokenBody,
  context: RequestContext,
  proof: string | undefined,
) => Promise<TokenPair>;

/** Creates the pipeline for token requests of every grant type. */
export function createGenerateTokens({ grants, verifyProof, countOutcome }: Dependencies): GenerateTokens {
  return async (caller, body, context, proof) => {
    const { grant_type, ...parameters } = body;
    const known: readonly string[] = [...grantTypes, ...("client" in caller ? caller.client.grantTypes : [])];
    const grantType = allGrantTypes.find((type) => type === grant_type && known.includes(type));
    if (!grantType) {
      const message = `grant_type must be one of ${grantTypes.join(", ")}, or another one that this client lists.`;
      throw new ServiceError(AuthErrorKinds.unsupportedGrantType, message);
    }
    const client = permittedClient(caller, grantType);
    const grant = grants[grantType];
    requireParameters(grant, grantType, parameters);
    const isPublic = caller.kind === "public";
    const request: TokenRequest = {
      client,
      keyThumbprint: isPublic ? await verifyProof(proof, "/oauth2/v1/tokens") : undefined,
      parameters,
      context,
      description: readDescription(parameters.device_name, parameters.metadata),
      chooseScopes: (permitted) => chooseScopes(parameters.scope, permitted),
    };
    const pair = await grant.redeem(request);
    countOutcome(grantType, pair ? "issued" : "refused");
    if (!pair) throw invalidGrant();
    return pair;
  };
}

function permittedClient(caller: Caller, grantType: GrantType): Client {
  if ((caller.kind === "client" || caller.kind === "public") && caller.client.grantTypes.includes(grantType))
    return caller.client;
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
