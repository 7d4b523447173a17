import { connectNodeAdapter } from "@connectrpc/connect-node";
import type { Verifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/connect";
import { Health, HealthCheckResponse_ServingStatus } from "./health_pb.ts";
import { listen } from "./node-http.ts";

export function start(verifier: Verifier): Promise<string> {
  const handler = connectNodeAdapter({
    interceptors: [bearer(verifier, { scopes: ["orders"] })],
    routes: (router) =>
      router.service(Health, {
        check(_request, context) {
          context.responseHeader.set("x-user", tokenOf(context).sub);
          return { status: HealthCheckResponse_ServingStatus.SERVING };
        },
      }),
  });
  return listen(handler);
}
