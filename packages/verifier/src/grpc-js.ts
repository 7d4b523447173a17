/** For servers of `@grpc/grpc-js`: `new Server({ interceptors: [bearer(verifier)] })`. */
import { Metadata, ServerInterceptingCall, type ServerInterceptor } from "@grpc/grpc-js";
import { checkRequirements, type Requirements } from "./requirements.ts";
import { createTokens } from "./token-of.ts";
import type { Verifier } from "./verifier.ts";

const tokens = createTokens("call");

/** The token of a call that {@link bearer} has let in. @throws Error for any other */
export const tokenOf = (call: { readonly metadata: Metadata }) => tokens.tokenOf(call.metadata);

export interface GrpcRequirements extends Requirements {
  /** Services that need no token, such as `grpc.health.v1.Health`: an interceptor is one for the whole server. */
  readonly exceptServices?: readonly string[];
}

/** @returns an interceptor that lets only calls with a good token on. A stream is checked when it begins. */
export function bearer(
  verifier: Verifier,
  { exceptServices = [], ...requirements }: GrpcRequirements = {},
): ServerInterceptor {
  checkRequirements(requirements);
  if (!Array.isArray(exceptServices)) throw new TypeError("exceptServices must be an array");
  return ({ path }, call) => {
    const [, service = ""] = path.split("/");
    if (exceptServices.includes(service)) return new ServerInterceptingCall(call);

    async function check(metadata: Metadata, next: (metadata: Metadata) => void): Promise<void> {
      // Two of them are none that can be believed.
      const authorization = metadata.get("authorization").join(", ");
      const { token, refusal } = await verifier.verify(authorization, requirements);
      if (refusal) {
        const trailers = new Metadata();
        for (const [name, value] of Object.entries(refusal.headers)) trailers.set(name, value);
        call.sendStatus({ code: refusal.grpcCode, details: refusal.message, metadata: trailers });
        return;
      }
      tokens.keep(metadata, token);
      next(metadata);
    }
    return new ServerInterceptingCall(call, {
      start: (next) => next({ onReceiveMetadata: (metadata, pass) => void check(metadata, pass) }),
    });
  };
}
