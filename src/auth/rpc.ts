/** auth.v1 over gRPC, gRPC-Web and Connect: decode, authorise, one call, encode. */
import { IntrospectionService } from "../../gen/proto/auth/v1/introspection_pb.ts";
import { ServiceError } from "../platform/base/errors.ts";
import { implement, type RpcService } from "../platform/rpc/service.ts";
import { type Authenticator, requireIntrospection } from "./clients/authenticate-client.ts";
import { AuthErrorKinds, invalidClient } from "./errors.ts";
import type { Introspect } from "./tokens/introspect.ts";

interface Dependencies {
  readonly authenticator: Authenticator;
  readonly introspect: Introspect;
}

export function authRpc({ authenticator, introspect }: Dependencies): RpcService {
  return implement(
    IntrospectionService,
    {
      async introspect({ token }, { metadata }) {
        const caller =
          (await authenticator.client(metadata("authorization"))) ??
          authenticator.platform(metadata("x-api-key"));
        if (!caller) throw invalidClient();
        requireIntrospection(caller);
        if (token === "") throw new ServiceError(AuthErrorKinds.missingToken, "The token is missing.");
        const claims = await introspect(token);
        if (!claims) return { active: false };
        const { sub, aud, nbf, iss, exp, iat, jti, client_id: clientId, scope = "", gty, org_id } = claims;
        const ofUser = gty === undefined && { userInfo: { userId: sub }, username: sub };
        return {
          active: true,
          sub,
          aud: [...aud],
          nbf: String(nbf),
          iss,
          exp: String(exp),
          iat: String(iat),
          jti,
          clientId,
          tokenType: "Bearer",
          scope,
          ...ofUser,
          ...(org_id !== undefined && { orgId: org_id }),
        };
      },
    },
    { priority: "high" },
  );
}
