/** Clients of the RPC services, over any transport of Connect 2: `createConnectTransport`, `createGrpcTransport`, … */
import {
  type Client,
  Code,
  ConnectError,
  createClient,
  type Interceptor,
  type Transport,
} from "@connectrpc/connect";
import { IntrospectionService } from "@gatepost/contracts/auth/v1/introspection_pb";
import { DeliveryService } from "@gatepost/contracts/push/v1/delivery_pb";
import { NotificationService } from "@gatepost/contracts/push/v1/notifications_pb";
import type { TokenSource } from "./authorized-fetch.ts";
import { type ClientCredentials, basic as header } from "./call.ts";
import { unlessAborted } from "./platform.ts";

export const introspectionClient = (transport: Transport): Client<typeof IntrospectionService> =>
  createClient(IntrospectionService, transport);

export const deliveryClient = (transport: Transport): Client<typeof DeliveryService> =>
  createClient(DeliveryService, transport);

export const notificationClient = (transport: Transport): Client<typeof NotificationService> =>
  createClient(NotificationService, transport);

/** Sends a client's id and secret with each call. */
export function basic({ clientId, clientSecret }: Required<ClientCredentials>): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", header(clientId, clientSecret));
    return next(request);
  };
}

/**
 * Sends the token with each call of the transport: give it to one whose `baseUrl` may have it. A call that is refused
 * as UNAUTHENTICATED is repeated once with another, unless it is a stream.
 */
export function bearer(session: TokenSource): Interceptor {
  return (next) => async (request) => {
    const tokenBeside = (refused?: string) =>
      unlessAborted(request.signal, () => session.accessToken(refused));
    const token = await tokenBeside();
    request.header.set("authorization", `Bearer ${token}`);
    try {
      return await next(request);
    } catch (error) {
      if (request.stream || !(error instanceof ConnectError) || error.code !== Code.Unauthenticated)
        throw error;
      request.header.set("authorization", `Bearer ${await tokenBeside(token)}`);
      return next(request);
    }
  };
}
