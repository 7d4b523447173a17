/** For servers of Connect 2 (`@connectrpc/connect`): over Connect, gRPC and gRPC-Web. */
import { ConnectError, type ContextValues, createContextKey, type Interceptor } from "@connectrpc/connect";
import type { AccessToken } from "./access-token.ts";
import { checkRequirements, type Requirements } from "./requirements.ts";
import type { Verifier } from "./verifier.ts";

const key = createContextKey<AccessToken | undefined>(undefined, { description: "access token" });

/** The token of a call that {@link bearer} has let in. @throws Error for any other */
export function tokenOf({ values }: { readonly values: ContextValues }): AccessToken {
  const token = values.get(key);
  if (!token) throw new Error("This call did not come through bearer(): it has no access token");
  return token;
}

/** @returns an interceptor that lets only calls with a good token on. A stream is checked when it begins. */
export function bearer(verifier: Verifier, requirements: Requirements = {}): Interceptor {
  checkRequirements(requirements);
  return (next) => async (request) => {
    const { token, refusal } = await verifier.verify(request.header.get("authorization"), requirements);
    if (refusal) throw new ConnectError(refusal.message, refusal.grpcCode, { ...refusal.headers });
    request.contextValues.set(key, token);
    return next(request);
  };
}
