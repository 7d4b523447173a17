/** A program of a user who has also installed what Connect, gRPC and the protos need. It is compiled, not run. */
import type { Transport } from "@connectrpc/connect";
import { serviceToken } from "@gatepost/client";
import { basic, bearer, introspectionClient } from "@gatepost/client/connect";
import { AuthorizationRevokedSchema } from "@gatepost/contracts/auth/v1/events_pb";
import type { DeliveryService } from "@gatepost/contracts/push/v1/delivery_pb";
import { createVerifier } from "@gatepost/verifier";
import { bearer as connect } from "@gatepost/verifier/connect";
import { bearer as grpc } from "@gatepost/verifier/grpc-js";
import { Server } from "@grpc/grpc-js";

const credentials = { clientId: "internal", clientSecret: "secret" };

export async function subject(transport: Transport): Promise<string> {
  const { active, sub } = await introspectionClient(transport).introspect({ token: "token" });
  return active ? sub : AuthorizationRevokedSchema.typeName;
}

export function servers() {
  const verifier = createVerifier({
    issuer: "https://api.example.com",
    audience: "orders-api",
    mode: "keys",
  });
  const session = serviceToken({ authUrl: "https://api.example.com", client: credentials });
  const interceptors = [connect(verifier), basic(credentials), bearer(session)];
  return { interceptors, server: new Server({ interceptors: [grpc(verifier)] }) };
}

export type Delivery = typeof DeliveryService;
