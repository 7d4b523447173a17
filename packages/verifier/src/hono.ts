/** For Hono 4. */
import { httpResponse } from "./refusal.ts";
import { checkRequirements, type Requirements } from "./requirements.ts";
import { createTokens } from "./token-of.ts";
import type { Verifier } from "./verifier.ts";

/** The part of Hono's context that is read. */
export interface Context {
  readonly req: { header(name: string): string | undefined };
}

const tokens = createTokens("context");

/** The token of a request that {@link bearer} has let in. @throws Error for any other */
export const tokenOf = (context: Context) => tokens.tokenOf(context);

/** @returns a middleware that lets only requests with a good token on to what comes after it */
export function bearer(verifier: Verifier, requirements: Requirements = {}) {
  checkRequirements(requirements);
  return async (context: Context, next: () => Promise<void>): Promise<Response | undefined> => {
    const { token, refusal } = await verifier.verify(context.req.header("authorization"), requirements);
    if (refusal) {
      const { headers, body } = httpResponse(refusal);
      return new Response(body, { status: refusal.status, headers });
    }
    tokens.keep(context, token);
    await next();
    return undefined;
  };
}
