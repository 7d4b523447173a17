/** For Fastify 5: `app.addHook("onRequest", bearer(verifier))`, or `onRequest` of a route. */
import type { IncomingRequest } from "./node-http.ts";
import { httpResponse } from "./refusal.ts";
import { checkRequirements, type Requirements } from "./requirements.ts";
import { createTokens } from "./token-of.ts";
import type { Verifier } from "./verifier.ts";

/** The part of `FastifyReply` that is used. */
export interface Reply {
  code(status: number): unknown;
  headers(headers: Record<string, string>): unknown;
  send(body: string): unknown;
}

const tokens = createTokens("request");

/** The token of a request that {@link bearer} has let in. @throws Error for any other */
export const tokenOf = (request: IncomingRequest) => tokens.tokenOf(request);

/** @returns a hook that lets only requests with a good token on to the handler; the body of others is not read */
export function bearer(verifier: Verifier, requirements: Requirements = {}) {
  checkRequirements(requirements);
  return async (request: IncomingRequest, reply: Reply): Promise<unknown> => {
    const { token, refusal } = await verifier.verify(request.headers.authorization, requirements);
    if (!refusal) return tokens.keep(request, token);
    const { headers, body } = httpResponse(refusal);
    reply.code(refusal.status);
    reply.headers(headers);
    reply.send(body);
    // Told so, Fastify does not go on.
    return reply;
  };
}
