/**
 * connect-es over both of its web protocols, on the HTTP port. Introspection, a notification to one user and the progress
 * of notifications are calls of RPC; the rest of the walk is done by openapi-fetch.
 */
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { gatepost } from "../openapi-fetch/client.ts";
import { api, authUrl, basic, type Gatepost, walk } from "../walk.ts";
import { IntrospectionService } from "./generated/rpc/auth/v1/introspection_pb.js";
import { DeliveryService, NotificationState } from "./generated/rpc/push/v1/delivery_pb.js";
import { NotificationService } from "./generated/rpc/push/v1/notifications_pb.js";

function over(transport: Transport): Gatepost {
  const introspection = createClient(IntrospectionService, transport);
  const delivery = createClient(DeliveryService, transport);
  const notifications = createClient(NotificationService, transport);
  return {
    ...gatepost,
    introspect(token) {
      return introspection.introspect({ token }, { headers: { authorization: basic(api) } });
    },
    create(accessToken, key, notification) {
      const headers = { authorization: `Bearer ${accessToken}`, "idempotency-key": key };
      return notifications.createNotification(notification, { headers });
    },
    /** Watches until the stream ends by itself. */
    async progress(accessToken, notificationId) {
      const headers = { authorization: `Bearer ${accessToken}` };
      let last = { state: "", sent: 0 };
      for await (const { progress } of delivery.watchProgress({ notificationId }, { headers })) {
        if (progress) last = { state: NotificationState[progress.state], sent: progress.sent };
      }
      return last;
    },
  };
}

const { origin } = new URL(authUrl);
await walk(over(createConnectTransport({ baseUrl: origin })));
await walk(over(createConnectTransport({ baseUrl: origin, useBinaryFormat: true })));
await walk(over(createGrpcWebTransport({ baseUrl: origin })));
