/** orval with its fetch client: a function for each operation, whose response is told apart by its status. */
import { api, basic, expectData, expectStatus, type Gatepost, internal, walk } from "../walk.ts";
import * as auth from "./generated/auth.ts";
import * as push from "./generated/push.ts";

const asInternal = { headers: { authorization: basic(internal) } };
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** The data of a response with this status. @throws if it has another */
function dataOf<R extends { status: number; data: unknown }, S extends R["status"]>(
  response: R,
  status: S,
): Extract<R, { status: S }>["data"] {
  expectStatus(response.status, status, response.data);
  return response.data;
}

const gatepost: Gatepost = {
  async createIdentity(identity) {
    return dataOf(await auth.createIdentity(identity, asInternal), 200);
  },
  async createAgain(identity) {
    return dataOf(await auth.createIdentity(identity, asInternal), 409).code;
  },
  async setPassword(id, password) {
    dataOf(await auth.setIdentityPassword(id, { password }, asInternal), 204);
  },
  async generateTokens(client, request) {
    return dataOf(await auth.generateTokens(request, { headers: { authorization: basic(client) } }), 200);
  },
  async introspect(token) {
    return dataOf(await auth.introspectToken({ token }, { headers: { authorization: basic(api) } }), 200);
  },
  async revoke(client, token) {
    return dataOf(await auth.revokeToken({ token }, { headers: { authorization: basic(client) } }), 200)
      .message;
  },
  async saveDevice(accessToken, device, offset) {
    const headers = { ...bearer(accessToken), "barrier-user-utc-offset": offset };
    dataOf(await push.savePushToken(device, { headers }), 204);
  },
  async deleteDevice(accessToken, token) {
    dataOf(await push.deletePushToken({ token }, { headers: bearer(accessToken) }), 204);
  },
  async send(accessToken, key, notification) {
    const headers = { ...bearer(accessToken), "idempotency-key": key };
    const response = await push.sendPushNotification(notification, { headers });
    return expectData(response.headers.get("notification-id") ?? undefined, response.data);
  },
  async create(accessToken, key, notification) {
    const headers = { ...bearer(accessToken), "idempotency-key": key };
    return dataOf(await push.createNotification(notification, { headers }), 201);
  },
  async progress(accessToken, id) {
    return dataOf(await push.getNotification(id, { headers: bearer(accessToken) }), 200);
  },
  async history(accessToken, markViewed) {
    return dataOf(await push.getNotificationsHistory({ markViewed }, { headers: bearer(accessToken) }), 200);
  },
  async summary(accessToken) {
    return dataOf(await push.getNotificationsSummary({}, { headers: bearer(accessToken) }), 200).viewed;
  },
};

await walk(gatepost);
