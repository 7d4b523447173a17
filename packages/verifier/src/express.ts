/** For Express 5, and whatever else takes `(request, response, next)`. */
import { type IncomingRequest, type OutgoingResponse, refuse } from "./node-http.ts";
import { checkRequirements, type Requirements } from "./requirements.ts";
import { createTokens } from "./token-of.ts";
import type { Verifier } from "./verifier.ts";

const tokens = createTokens("request");

/** The token of a request that {@link bearer} has let in. @throws Error for any other */
export const tokenOf = (request: IncomingRequest) => tokens.tokenOf(request);

/** @returns a middleware that lets only requests with a good token on to what comes after it */
export function bearer(verifier: Verifier, requirements: Requirements = {}) {
  checkRequirements(requirements);
  return async (request: IncomingRequest, response: OutgoingResponse, next: () => void): Promise<void> => {
    const { token, refusal } = await verifier.verify(request.headers.authorization, requirements);
    if (refusal) return refuse(response, refusal);
    tokens.keep(request, token);
    next();
  };
}
