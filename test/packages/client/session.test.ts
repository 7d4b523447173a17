/** Sessions that must not end by accident, with a real server. */
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createSignIn } from "../../../packages/client/src/sign-in.ts";
import { memoryStore } from "../../../packages/client/src/store.ts";
import { newKeyPair, signerOf } from "../../../packages/client/src/web-crypto.ts";
import { authApi } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { appClient } from "../../support/public-app.ts";
import { type PushServer, startPushServer } from "../../support/push-server.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { lose, refreshTokenIn, type SessionLab, startSessionLab } from "./sessions.ts";

let server: PushServer;
let lab: SessionLab;
const cleanup = suiteCleanup();
beforeAll(async () => {
  // Each repeat at "hasty" is later than its window.
  const hasty = appClient("hasty", { tokenSettings: { refreshGraceSeconds: 0 } });
  server = await startPushServer("PGlite", { env: { ...withClients(hasty), ...generousLimits } });
  cleanup.defer(() => server.stop());
  lab = await startSessionLab(server);
  cleanup.defer(() => lab.proxy.close());
});
beforeEach(() => lab.onWay("", () => undefined));

const tokens = "/oauth2/v1/tokens";

test("50 calls at once with an expired token refresh once", async () => {
  const { first } = await lab.signedIn();
  const old = await first.session.accessToken();
  first.pass(900);
  const all = await Promise.all(Array.from({ length: 50 }, () => first.session.accessToken()));
  expect(new Set(all).size).toBe(1);
  expect(all[0]).not.toBe(old);
  // An API that has refused the old one meanwhile gets the new one.
  expect(await first.session.accessToken(old)).toBe(all[0]);
  expect(lab.refreshes).toEqual([200]);
});

test.each([503, 500, 429, 408])(
  "a %d keeps the session, and the same refresh is repeated",
  async (status) => {
    const { store, first } = await lab.signedIn();
    const before = await refreshTokenIn(store);
    lab.onWay(tokens, (passing) => {
      passing.status = status;
    });
    first.pass(900);
    await expect(first.session.accessToken()).rejects.toMatchObject({ name: "UnavailableError", status });
    expect(await refreshTokenIn(store)).toBe(before);
    lab.onWay("", () => undefined);
    await first.session.accessToken();
    expect(first.endings).toEqual([]);
  },
);

test("auth is not asked again before Retry-After, and then it is", async () => {
  const { store, first } = await lab.signedIn();
  let asked = 0;
  const waiting = lab.instance({
    store,
    platform: {
      async fetch(...request) {
        if (++asked > 1) return fetch(...request);
        const body = { error: "slow_down", error_description: "later" };
        return Response.json(body, { status: 429, headers: { "retry-after": "60" } });
      },
    },
  });
  const old = await first.session.accessToken();
  const refused = { name: "UnavailableError", status: 429, retryAfterSeconds: 60 };
  for (let call = 0; call < 3; call++)
    await expect(waiting.session.accessToken(old)).rejects.toMatchObject(refused);
  expect(asked).toBe(1);
  waiting.pass(60);
  expect(await waiting.session.accessToken(old)).not.toBe(old);
});

test("invalid_grant with a newer pair in the store is no end", async () => {
  const { store, first } = await lab.signedIn();
  const second = lab.instance({ store });
  const old = await first.session.accessToken();
  const third = lab.instance({
    store,
    platform: {
      async fetch() {
        await second.session.accessToken(old);
        return Response.json({ error: "invalid_grant", error_description: "used" }, { status: 400 });
      },
    },
  });
  expect(await third.session.accessToken(old)).toBe(await second.session.accessToken());
  expect([...third.endings, ...second.endings]).toEqual([]);
});

test("invalid_grant ends it, once, and removes it from the store", async () => {
  const { store, first } = await lab.signedIn();
  const refresh_token = await refreshTokenIn(store);
  await authApi(server.authBase).call("revokeToken", {
    as: `Basic ${btoa("backend:backend-dev-secret")}`,
    form: { token: refresh_token ?? "" },
  });
  first.pass(900);
  const all = await Promise.allSettled([first.session.accessToken(), first.session.accessToken()]);
  for (const one of all) expect(one).toMatchObject({ reason: { name: "SignedOutError", reason: "ended" } });
  await expect(first.session.accessToken()).rejects.toMatchObject({ reason: "none" });
  expect(first.endings).toEqual(["ended"]);
  expect(await store.read()).toBeUndefined();
});

test("a repeat that comes after two rotations of another process is none", async () => {
  const { store, first } = await lab.signedIn();
  const second = lab.instance({ store });
  const slow = lab.instance({
    store,
    platform: {
      async sleep() {
        for (let rotation = 0; rotation < 2; rotation++)
          await second.session.accessToken(await second.session.accessToken());
      },
    },
  });
  let isFirst = true;
  lab.onWay(tokens, () => {
    if (isFirst) {
      isFirst = false;
      lose();
    }
  });
  const token = await slow.session.accessToken(await first.session.accessToken());
  expect(token).toBe(await second.session.accessToken());
  expect(await authApi(server.authBase).introspect(token)).toMatchObject({ active: true });
  expect(lab.refreshes).toEqual([200, 200, 200]);
});

test("a pair that comes late is not written over a newer one", async () => {
  const { store, first } = await lab.signedIn();
  const second = lab.instance({ store });
  const slow = lab.instance({
    store,
    platform: {
      async fetch(...request) {
        const response = await fetch(...request);
        for (let rotation = 0; rotation < 2; rotation++)
          await second.session.accessToken(await second.session.accessToken());
        return response;
      },
    },
  });
  const token = await slow.session.accessToken(await first.session.accessToken());
  expect(token).toBe(await second.session.accessToken());
  second.pass(900);
  expect(await authApi(server.authBase).introspect(await second.session.accessToken())).toMatchObject({
    active: true,
  });
});

test("a store that cannot be written ends nothing, and the pair is stored later", async () => {
  const { store, first } = await lab.signedIn();
  let isFull = true;
  const disk = {
    read: store.read,
    async replace(expected?: string, next?: string) {
      if (isFull) throw new Error("disk full");
      return store.replace(expected, next);
    },
  };
  const instance = lab.instance({ store: disk });
  const old = await first.session.accessToken();
  await expect(instance.session.accessToken(old)).rejects.toThrow("disk full");
  isFull = false;
  expect(await instance.session.accessToken(old)).not.toBe(old);
  expect(lab.refreshes).toEqual([200]);
  expect(instance.endings).toEqual([]);
});

test("another user in the same store is told, and not used", async () => {
  const { store, first } = await lab.signedIn();
  await first.session.accessToken();
  const other = await lab.signedIn();
  await store.replace(await store.read(), await other.store.read());
  for (let call = 0; call < 2; call++)
    await expect(first.session.accessToken()).rejects.toMatchObject({ reason: "other_identity" });
  await first.session.signOut();
  expect(await store.read()).toBe(await other.store.read());
});

test("without a network the user is signed out at once, and auth is told at the next start", async () => {
  const { store, first } = await lab.signedIn();
  const token = await first.session.accessToken();
  const api = authApi(server.authBase);
  lab.onWay("/oauth2/v1/revoke", lose);
  const offline = lab.instance({
    store,
    platform: { fetch: () => Promise.reject(new TypeError("offline")) },
  });
  await offline.session.signOut();
  await expect(offline.session.accessToken()).rejects.toMatchObject({ reason: "none" });
  expect(await api.introspect(token)).toMatchObject({ active: true });
  lab.onWay("", () => undefined);
  lab.instance({ store });
  await expect.poll(() => api.introspect(token)).toEqual({ active: false });
  await expect.poll(() => store.read()).toBeUndefined();
});

test("a pair that comes after the user has signed out is revoked", async () => {
  const { store, first } = await lab.signedIn();
  let late = "";
  const slow = lab.instance({
    store,
    platform: {
      async fetch(url, init) {
        const response = await fetch(url, init);
        if (!String(url).endsWith(tokens)) return response;
        ({ access_token: late } = Object(await response.clone().json()));
        await store.replace(await store.read(), undefined);
        return response;
      },
    },
  });
  const refreshing = slow.session.accessToken(await first.session.accessToken());
  await expect(refreshing).rejects.toMatchObject({ reason: "signed_out" });
  expect(await authApi(server.authBase).introspect(late)).toEqual({ active: false });
  expect(await store.read()).toBeUndefined();
});

/** Of an earlier start, so that the age of its access token is unknown. */
async function expectLastCall(options: Parameters<SessionLab["instance"]>[0]): Promise<void> {
  const api = authApi(server.authBase);
  const back = lab.instance({ ...options, platform: { sleep: () => new Promise(() => undefined) } });
  const seen: string[] = [];
  await back.session.signOut(async (token) => {
    expect(await api.introspect(token)).toMatchObject({ active: true });
    seen.push(token);
  });
  expect(lab.refreshes).toEqual([200]);
  expect(await api.introspect(seen[0] ?? "")).toEqual({ active: false });
  expect(await options.store.read()).toBeUndefined();
}

test("what is refreshed for the last call of a sign-out is revoked", async () => {
  const { store } = await lab.signedIn();
  await expectLastCall({ store });
});

describe("bound to a key", () => {
  async function bound(clientId: string, clockSeconds = 0) {
    const phone = newMobilePhone();
    await authApi(server.authBase).newIdentity({ phone });
    const store = memoryStore();
    const signer = await signerOf(await newKeyPair());
    const app = lab.instance({ store, signer, clientId });
    app.setClock(clockSeconds);
    const address = { authUrl: `${lab.proxy.origin}/api/auth`, issuer: server.settings.auth?.issuer };
    const { session, platform } = app;
    const signIn = createSignIn({ ...address, client: { clientId }, signer, session, platform });
    const pending = JSON.parse(JSON.stringify(await signIn.begin(phone)));
    const code = await sentCode([server], phone);
    const wrong = code === "000000" ? "111111" : "000000";
    await expect(signIn.submit(pending, wrong)).rejects.toMatchObject({ code: "insufficient_authorization" });
    await signIn.submit(pending, code, { deviceName: "Ada's phone" });
    lab.refreshes.length = 0;
    return { store, signer, app };
  }

  test.each([0, 3600, -3600])(
    "a clock that is off by %d seconds, and is set meanwhile, costs no refresh",
    async (seconds) => {
      const { app } = await bound("hasty", seconds);
      for (const now of [seconds, -seconds, 0, seconds]) {
        app.setClock(now);
        await app.session.accessToken();
      }
      expect(lab.refreshes).toEqual([]);
      for (let round = 0; round < 3; round++) {
        app.pass(860);
        app.setClock(-seconds);
        await app.session.accessToken();
        app.pass(20);
        app.setClock(seconds);
        await app.session.accessToken();
      }
      expect(lab.refreshes.filter((status) => status === 200)).toEqual([200, 200, 200]);
      // The nonce of the first response serves all later ones.
      expect(lab.refreshes.length).toBeLessThanOrEqual(4);
    },
  );

  test("killed in the middle of a rotation, it goes on after the window", async () => {
    const { store, signer, app } = await bound("hasty");
    const before = await refreshTokenIn(store);
    const old = await app.session.accessToken();
    lab.onWay(tokens, lose);
    const killed = lab.instance({
      ...{ store, signer, clientId: "hasty" },
      platform: { sleep: () => Promise.reject(new Error("killed")) },
    });
    await expect(killed.session.accessToken(old)).rejects.toThrow("killed");
    expect(await refreshTokenIn(store)).toBe(before);
    lab.onWay("", () => undefined);
    const back = lab.instance({ store, signer, clientId: "hasty" });
    const token = await back.session.accessToken(old);
    expect(await authApi(server.authBase).introspect(token)).toMatchObject({ active: true });
    expect(await refreshTokenIn(store)).not.toBe(before);
    expect(back.endings).toEqual([]);
  });

  test("what is refreshed for the last call of a sign-out is revoked, too", async () => {
    const { store, signer } = await bound("hasty");
    await expectLastCall({ store, signer, clientId: "hasty" });
  });

  test("without its key nothing is sent", async () => {
    const { store, app } = await bound("hasty");
    const signer = await signerOf(await newKeyPair());
    const restored = lab.instance({ store, signer, clientId: "hasty" });
    await expect(restored.session.accessToken()).rejects.toMatchObject({ reason: "key_lost" });
    expect(lab.refreshes).toEqual([]);
    // Where the key is, such as in another page, it goes on.
    await app.session.accessToken(await app.session.accessToken());
    expect([lab.refreshes, app.endings]).toEqual([[200], []]);
  });
});
