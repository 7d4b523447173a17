/** Calls of both services by the client, with a real server. */
import { createConnectTransport } from "@connectrpc/connect-node";
import { beforeAll, describe, expect, test } from "vitest";
import { authorizedFetch } from "../../../packages/client/src/authorized-fetch.ts";
import {
  basic,
  bearer,
  introspectionClient,
  notificationClient,
} from "../../../packages/client/src/connect.ts";
import { sendNotification } from "../../../packages/client/src/send-notification.ts";
import {
  type AuthClient,
  createAuthClient,
  createPushClient,
  type PushClient,
} from "../../../packages/client/src/service-client.ts";
import { serviceToken } from "../../../packages/client/src/service-token.ts";
import { authApi, newPhone } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type PushServer, startPushServer } from "../../support/push-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { lose, type SessionLab, startSessionLab } from "./sessions.ts";

const internal = { clientId: "internal", clientSecret: "internal-dev-secret" };
const robot = { clientId: "robot", clientSecret: "robot: dev+secret" };

let server: PushServer;
let lab: SessionLab;
let auth: AuthClient;
let push: PushClient;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const client = { ...robot, grantTypes: ["client_credentials"], scopes: ["orders"] };
  server = await startPushServer("PGlite", { env: withClients(client) });
  cleanup.defer(() => server.stop());
  lab = await startSessionLab(server);
  cleanup.defer(() => lab.proxy.close());
  auth = createAuthClient({ url: server.authBase, credentials: internal });
  const backoffice = { clientId: "backoffice", clientSecret: "backoffice-dev-secret" };
  const session = serviceToken({ authUrl: server.authBase, client: backoffice });
  const fetch = authorizedFetch({ session, origins: [lab.proxy.origin] });
  push = createPushClient({ url: `${lab.proxy.origin}/api/push-orchestration`, fetch });
});

describe("request", () => {
  test("gives what the operation gives", async () => {
    const phone = newPhone();
    const { id } = await auth.request("createIdentity", { body: { id: "u/1 %?", phone } });
    expect(await auth.request("getIdentity", { path: { id } })).toMatchObject({ id: "u/1 %?", phone });
    expect(await auth.request("findIdentityByPhone", { query: { phone } })).toMatchObject({ id });
    expect(await auth.request("deleteIdentity", { path: { id } })).toBeUndefined();
  });

  test("fails with the code of the contract, and what is wrong where", async () => {
    const refused = auth.request("createIdentity", { body: { id: "", phone: "1" } });
    await expect(refused).rejects.toMatchObject({
      ...{ name: "ProblemError", code: "invalid_request", status: 400, requestId: expect.any(String) },
      errors: expect.arrayContaining([expect.objectContaining({ pointer: "/body/id" })]),
    });
    const body = { grant_type: "refresh_token", refresh_token: "x" };
    const credentials = { clientId: "backend", clientSecret: "backend-dev-secret" };
    const app = createAuthClient({ url: server.authBase, credentials });
    await expect(app.request("generateTokens", { body })).rejects.toMatchObject({
      ...{ name: "OAuthError", code: "invalid_grant", status: 400 },
    });
  });

  test.each(["..", ".", ""])("names no other path by the id %j", (id) => {
    expect(() => auth.request("deleteIdentity", { path: { id } })).toThrow("cannot be a id");
  });

  test("ends when its signal does", async () => {
    const signal = AbortSignal.abort(new Error("no longer wanted"));
    await expect(auth.request("getKeySet", { signal })).rejects.toThrow("no longer wanted");
  });
});

describe("list", () => {
  test("goes through all pages, whether they are numbered or follow each other", async () => {
    const api = authApi(server.authBase);
    const { id } = await api.newIdentity();
    for (let signIn = 0; signIn < 5; signIn++) await api.newPair(id);
    const input = { path: { id }, query: { size: 2 } };
    expect(await Array.fromAsync(auth.list("listAuthorizations", input))).toHaveLength(5);
    const ids: string[] = [];
    for (let sent = 0; sent < 3; sent++) ids.push((await sendNotification(push, toUser(id))).id);
    const listed = await Array.fromAsync(push.list("listNotifications", { query: { size: 2 } }));
    expect(listed.map((one) => one.id)).toEqual(ids.reverse());
  });
});

const toUser = (id: string) => ({
  audience: { users: [id] },
  content: { texts: { en: { title: "Hello", message: "How are you?" } } },
});

test("a send whose response is cut twice sends one notification", async () => {
  const { id } = await authApi(server.authBase).newIdentity();
  const before = await Array.fromAsync(push.list("listNotifications"));
  let cuts = 0;
  lab.onWay("/notifications", ({ method }) => {
    if (method === "POST" && ++cuts < 3) lose();
  });
  const { platform } = lab.instance({ store: { read: async () => undefined, replace: async () => true } });
  const sent = await sendNotification(push, toUser(id), { platform });
  const after = await Array.fromAsync(push.list("listNotifications"));
  expect([cuts, after.length - before.length, after[0]?.id]).toEqual([3, 1, sent.id]);
});

test("a service's token is asked for once, and another is got where it is refused", async () => {
  const { platform, pass } = lab.instance({
    store: { read: async () => undefined, replace: async () => true },
  });
  const source = serviceToken({ authUrl: `${lab.proxy.origin}/api/auth`, client: robot, platform });
  lab.refreshes.length = 0;
  const [token = "", same] = await Promise.all([source.accessToken(), source.accessToken()]);
  expect([same, await source.accessToken()]).toEqual([token, token]);
  const other = await source.accessToken(token);
  pass(880);
  expect(new Set([token, other, await source.accessToken()]).size).toBe(3);
  expect(lab.refreshes).toEqual([200, 200, 200]);
  expect(await authApi(server.authBase).introspect(token)).toMatchObject({ sub: "robot", active: true });
});

test("another token is got where a service refuses one", async () => {
  const source = { accessToken: async (refused?: string) => (refused ? server.backofficeToken() : "old") };
  const fetch = authorizedFetch({ session: source, origins: [server.origin] });
  const client = createPushClient({ url: server.base, fetch });
  expect(await client.request("listProviders")).toBeDefined();
});

test("a redirect says what to look at", async () => {
  lab.onWay("/v1/jwks", (passing) => {
    passing.status = 302;
  });
  const client = createAuthClient({ url: `${lab.proxy.origin}/api/auth` });
  await expect(client.request("getKeySet")).rejects.toMatchObject({ name: "GatepostError", status: 302 });
});

describe("over Connect", () => {
  const transport = (interceptor: ReturnType<typeof basic>) =>
    createConnectTransport({ baseUrl: server.origin, httpVersion: "1.1", interceptors: [interceptor] });

  test("a client's own credentials are sent", async () => {
    const { id } = await authApi(server.authBase).newIdentity();
    const token = await server.userToken(id);
    const found = await introspectionClient(transport(basic(internal))).introspect({ token });
    expect(found).toMatchObject({ active: true, sub: id });
  });

  test("a token that is refused is replaced", async () => {
    const source = { accessToken: async (refused?: string) => (refused ? server.backofficeToken() : "old") };
    const sent = notificationClient(transport(bearer(source))).createNotification(toUser("u-1"));
    expect((await sent).id).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("a signal is heard while a token is waited for", async () => {
    const source = { accessToken: () => new Promise<never>(() => {}) };
    const signal = AbortSignal.timeout(1);
    const sent = notificationClient(transport(bearer(source))).createNotification(toUser("u-1"), { signal });
    await expect(sent).rejects.toThrow("timeout");
  });
});
