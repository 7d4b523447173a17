/** openapi-typescript and openapi-fetch: types alone are generated, the client is a library. */
import createClient from "openapi-fetch";
import { api, authUrl, basic, expectData, expectStatus, type Gatepost, internal, pushUrl } from "../walk.ts";
import type { paths as AuthPaths } from "./generated/auth.ts";
import type { paths as PushPaths } from "./generated/push.ts";

const auth = createClient<AuthPaths>({ baseUrl: authUrl });
const push = createClient<PushPaths>({ baseUrl: pushUrl });
const asInternal = { authorization: basic(internal) };
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const form = { "content-type": "application/x-www-form-urlencoded" };

export const gatepost: Gatepost = {
  async createIdentity(body) {
    const { data, error } = await auth.POST("/v1/identities", { body, headers: asInternal });
    return expectData(data, error);
  },
  async createAgain(body) {
    const { error } = await auth.POST("/v1/identities", { body, headers: asInternal });
    return expectData(error, "it was created again").code;
  },
  async setPassword(id, password) {
    const { response, error } = await auth.PUT("/v1/identities/{id}/password", {
      params: { path: { id } },
      body: { password },
      headers: asInternal,
    });
    expectStatus(response.status, 204, error);
  },
  async generateTokens(client, body) {
    const headers = { ...form, authorization: basic(client) };
    const { data, error } = await auth.POST("/oauth2/v1/tokens", { body, headers });
    return expectData(data, error);
  },
  async introspect(token) {
    const headers = { ...form, authorization: basic(api) };
    const { data, error } = await auth.POST("/oauth2/v1/introspect", { body: { token }, headers });
    return expectData(data, error);
  },
  async revoke(client, token) {
    const headers = { ...form, authorization: basic(client) };
    const { data, error } = await auth.POST("/oauth2/v1/revoke", { body: { token }, headers });
    return expectData(data, error).message;
  },
  async saveDevice(accessToken, body, offset) {
    const { response, error } = await push.POST("/v1/pushprovider/token", {
      params: { header: { "barrier-user-utc-offset": offset } },
      body,
      headers: bearer(accessToken),
    });
    expectStatus(response.status, 204, error);
  },
  async deleteDevice(accessToken, token) {
    const { response, error } = await push.DELETE("/v1/pushprovider/token", {
      body: { token },
      headers: bearer(accessToken),
    });
    expectStatus(response.status, 204, error);
  },
  async send(accessToken, key, body) {
    const { response, error } = await push.POST("/v1/pushprovider/push", {
      params: { header: { "Idempotency-Key": key } },
      body,
      headers: bearer(accessToken),
    });
    return expectData(response.headers.get("notification-id") ?? undefined, error);
  },
  async create(accessToken, key, body) {
    const { data, error } = await push.POST("/v1/pushprovider/notifications", {
      params: { header: { "Idempotency-Key": key } },
      body,
      headers: bearer(accessToken),
    });
    return expectData(data, error);
  },
  async progress(accessToken, id) {
    const { data, error } = await push.GET("/v1/pushprovider/notifications/{id}", {
      params: { path: { id } },
      headers: bearer(accessToken),
    });
    return expectData(data, error);
  },
  async history(accessToken, markViewed) {
    const { data, error } = await push.GET("/v1/pushprovider/notifications-history", {
      params: { query: { markViewed } },
      headers: bearer(accessToken),
    });
    return expectData(data, error);
  },
  async summary(accessToken) {
    const { data, error } = await push.GET("/v1/pushprovider/notifications-summary", {
      headers: bearer(accessToken),
    });
    return expectData(data, error).viewed;
  },
};
