/** kubb with its default client, axios: a function for each operation; a refusal is an exception. */
import axios from "axios";
import {
  api,
  authUrl,
  basic,
  type Credentials,
  expectData,
  type Gatepost,
  internal,
  pushUrl,
  walk,
} from "../walk.ts";
import * as auth from "./generated/auth/index.ts";
import * as push from "./generated/push/index.ts";

const as = (client: Credentials) => ({ baseURL: authUrl, headers: { authorization: basic(client) } });
const bearer = (token: string) => ({ baseURL: pushUrl, headers: { authorization: `Bearer ${token}` } });

const gatepost: Gatepost = {
  async createIdentity(data) {
    return (await auth.createIdentity({ data }, as(internal))).data;
  },
  async createAgain(data) {
    const refusal: unknown = await auth
      .createIdentity({ data }, as(internal))
      .catch((error: unknown) => error);
    if (!axios.isAxiosError<auth.CreateIdentity409>(refusal)) throw new Error("it was created again");
    return expectData(refusal.response?.data, refusal).code;
  },
  async setPassword(id, password) {
    await auth.setIdentityPassword({ id, data: { password } }, as(internal));
  },
  async generateTokens(client, data) {
    return (await auth.generateTokens({ data }, as(client))).data;
  },
  async introspect(token) {
    return (await auth.introspectToken({ data: { token } }, as(api))).data;
  },
  async revoke(client, token) {
    return (await auth.revokeToken({ data: { token } }, as(client))).data.message;
  },
  async saveDevice(accessToken, data, offset) {
    await push.savePushToken({ data, headers: { "barrier-user-utc-offset": offset } }, bearer(accessToken));
  },
  async deleteDevice(accessToken, token) {
    await push.deletePushToken({ data: { token } }, bearer(accessToken));
  },
  async send(accessToken, key, data) {
    const response = await push.sendPushNotification(
      { data, headers: { "Idempotency-Key": key } },
      bearer(accessToken),
    );
    return String(response.headers["notification-id"]);
  },
  async create(accessToken, key, data) {
    const headers = { "Idempotency-Key": key };
    return (await push.createNotification({ data, headers }, bearer(accessToken))).data;
  },
  async progress(accessToken, id) {
    return (await push.getNotification({ id }, bearer(accessToken))).data;
  },
  async history(accessToken, markViewed) {
    return (await push.getNotificationsHistory({ params: { markViewed } }, bearer(accessToken))).data;
  },
  async summary(accessToken) {
    return (await push.getNotificationsSummary({}, bearer(accessToken))).data.viewed;
  },
};

await walk(gatepost);
