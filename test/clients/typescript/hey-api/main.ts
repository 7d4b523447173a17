/** @hey-api/openapi-ts with its default client: a function for each operation, credentials by a callback. */
import {
  api,
  authUrl,
  type Credentials,
  expectData,
  expectStatus,
  type Gatepost,
  internal,
  pushUrl,
  walk,
} from "../walk.ts";
import { createClient as createAuth } from "./generated/auth/client/index.ts";
import * as auth from "./generated/auth/sdk.gen.ts";
import { createClient as createPush } from "./generated/push/client/index.ts";
import * as push from "./generated/push/sdk.gen.ts";

const authAs = ({ username, password }: Credentials) =>
  createAuth({ baseUrl: authUrl, auth: () => `${username}:${password}` });
const pushAs = (accessToken: string) => createPush({ baseUrl: pushUrl, auth: () => accessToken });
const asInternal = authAs(internal);

const gatepost: Gatepost = {
  async createIdentity(body) {
    const { data, error } = await auth.createIdentity({ client: asInternal, body });
    return expectData(data, error);
  },
  async createAgain(body) {
    const { error } = await auth.createIdentity({ client: asInternal, body });
    return expectData(error, "it was created again").code;
  },
  async setPassword(id, password) {
    const { response, error } = await auth.setIdentityPassword({
      client: asInternal,
      path: { id },
      body: { password },
    });
    expectStatus(response?.status ?? 0, 204, error);
  },
  async generateTokens(client, body) {
    const { data, error } = await auth.generateTokens({ client: authAs(client), body });
    return expectData(data, error);
  },
  async introspect(token) {
    const { data, error } = await auth.introspectToken({ client: authAs(api), body: { token } });
    return expectData(data, error);
  },
  async revoke(client, token) {
    const { data, error } = await auth.revokeToken({ client: authAs(client), body: { token } });
    return expectData(data, error).message;
  },
  async saveDevice(accessToken, body, offset) {
    const headers = { "barrier-user-utc-offset": offset };
    const { response, error } = await push.savePushToken({ client: pushAs(accessToken), body, headers });
    expectStatus(response?.status ?? 0, 204, error);
  },
  async deleteDevice(accessToken, token) {
    const { response, error } = await push.deletePushToken({ client: pushAs(accessToken), body: { token } });
    expectStatus(response?.status ?? 0, 204, error);
  },
  async send(accessToken, key, body) {
    const { response, error } = await push.sendPushNotification({
      client: pushAs(accessToken),
      headers: { "Idempotency-Key": key },
      body,
    });
    return expectData(response?.headers.get("notification-id") ?? undefined, error);
  },
  async create(accessToken, key, body) {
    const { data, error } = await push.createNotification({
      client: pushAs(accessToken),
      headers: { "Idempotency-Key": key },
      body,
    });
    return expectData(data, error);
  },
  async progress(accessToken, id) {
    const { data, error } = await push.getNotification({ client: pushAs(accessToken), path: { id } });
    return expectData(data, error);
  },
  async history(accessToken, markViewed) {
    const { data, error } = await push.getNotificationsHistory({
      client: pushAs(accessToken),
      query: { markViewed },
    });
    return expectData(data, error);
  },
  async summary(accessToken) {
    const { data, error } = await push.getNotificationsSummary({ client: pushAs(accessToken) });
    return expectData(data, error).viewed;
  },
};

await walk(gatepost);
