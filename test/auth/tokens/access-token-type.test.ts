/** The setting for the `typ` of access tokens, and what a change of it does to the tokens that were issued before. */
import { decodeProtectedHeader } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, mobileApp } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(backends)("the type of access tokens, on %s", (backend) => {
  let store: AuthStore;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
  });

  /** What `work` returns on a server of the store with this setting. */
  async function onServer<T>(type: string | undefined, work: (api: AuthApi) => Promise<T>): Promise<T> {
    const env = { ...store.env, ...(type !== undefined && { ACCESS_TOKEN_TYPE: type }) };
    const server = await startAuthServer(backend, { env });
    try {
      return await work(authApi(server.base));
    } finally {
      await server.stop();
    }
  }

  test("is at+jwt, or JWT where the setting says so; tokens that were issued as at+jwt stay active", async () => {
    const { id, standard } = await onServer(undefined, async (api) => {
      const { id } = await api.newIdentity();
      return { id, standard: (await api.newPair(id)).access_token };
    });
    expect(decodeProtectedHeader(standard).typ).toBe("at+jwt");

    const plain = await onServer("jwt", async (api) => {
      expect(await api.introspect(standard)).toMatchObject({ active: true, sub: id });
      const { access_token } = await api.newPair(id);
      expect(await api.introspect(access_token)).toMatchObject({ active: true, sub: id });
      const revoked = await api.newPair(id);
      const form = { token: revoked.access_token };
      expect((await api.call("revokeToken", { as: mobileApp, form })).status).toBe(200);
      expect(await api.introspect(revoked.access_token)).toEqual({ active: false });
      return access_token;
    });
    expect(decodeProtectedHeader(plain).typ).toBe("JWT");

    await onServer("at+jwt", async (api) => {
      expect(await api.introspect(plain)).toEqual({ active: false });
      expect(await api.introspect(standard)).toMatchObject({ active: true });
    });
  });
});
