/** A database that hangs: every request gets a response, no token is reported active, and afterwards all is as before. */
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type AuthApi, authApi, basic, internal, mobileApp } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../support/auth-store.ts";
import { type DatabaseGate, openDatabaseGate } from "../support/database-gate.ts";
import { HttpError, type Introspector, introspectors } from "../support/introspectors.ts";
import { backends } from "../support/servers.ts";

/** Milliseconds within which every request must get its response. */
const bound = 12_000;
const other = basic("other", "other-secret");
const clients = withClients({ clientId: "other", clientSecret: "other-secret", grantTypes: ["auth"] });

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL hangs", () => {
  let store: AuthStore;
  let gate: DatabaseGate;
  let server: AuthServer;
  let api: AuthApi;
  let callers: readonly Introspector[];
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    gate = await openDatabaseGate(store.env["DB_HOST"] ?? "", Number(store.env["DB_PORT"]));
    const env = { ...store.env, ...clients, DB_HOST: "127.0.0.1", DB_PORT: String(gate.port) };
    server = await startAuthServer("PostgreSQL", { env });
    api = authApi(server.base);
    callers = introspectors(server);
  });
  afterAll(async () => {
    for (const caller of callers) caller.close();
    await server.stop();
    await gate.close();
    await store.drop();
  });

  test("every operation returns 503 within the bound to every caller, and works again afterwards", async () => {
    const { id, phone } = await api.newIdentity();
    const pair = await api.newPair(id);
    const path = { id };
    const calls: Parameters<AuthApi["call"]>[] = [
      ["createIdentity", { as: internal, json: { id: "new", phone: "+12025550199" } }],
      ["getIdentity", { as: internal, path }],
      ["findIdentityByPhone", { as: internal, query: `?phone=${encodeURIComponent(phone)}` }],
      ["updateIdentity", { as: internal, path, json: { metadata: {} } }],
      ["deleteIdentity", { as: internal, path }],
      ["removeIdentityPassword", { as: internal, path }],
      ["generateTokens", { as: mobileApp, form: { grant_type: "auth", auth_id: id } }],
      // A client that this process has not cached.
      ["generateTokens", { as: other, form: { grant_type: "auth", auth_id: id } }],
      [
        "generateTokens",
        { as: mobileApp, form: { grant_type: "refresh_token", refresh_token: pair.refresh_token } },
      ],
      ["introspectToken", { as: internal, form: { token: pair.access_token } }],
      ["introspectToken", { as: other, form: { token: pair.access_token } }],
      ["revokeToken", { as: mobileApp, form: { token: pair.refresh_token } }],
    ];
    // Open all connections of the pool: opening a new one would time out sooner.
    await Promise.all(Array.from({ length: 40 }, () => api.newPair(id)));
    const thaw = gate.freeze();
    const began = performance.now();
    const responses = await Promise.all(
      calls.map(async (call) => {
        const { status } = await api.call(...call);
        return { operation: call[0], status, inTime: performance.now() - began < bound };
      }),
    );
    thaw();
    expect(responses).toEqual(calls.map(([operation]) => ({ operation, status: 503, inTime: true })));
    await vi.waitFor(
      async () => {
        const { access_token } = await api.newPair((await api.newIdentity()).id);
        expect(await api.introspect(access_token)).toMatchObject({ active: true });
      },
      { timeout: 10_000 },
    );
  }, 60_000);

  test("introspection is refused over every protocol within the bound, and is never active", async () => {
    const { access_token } = await api.newPair((await api.newIdentity()).id);
    for (const caller of callers) expect(await caller.ask(access_token)).toMatchObject({ active: true });
    const thaw = gate.freeze();
    const began = performance.now();
    const responses = await Promise.allSettled(callers.map((caller) => caller.ask(access_token)));
    const took = performance.now() - began;
    thaw();
    expect(took).toBeLessThan(bound);
    for (const [index, response] of responses.entries()) {
      const reason = response.status === "rejected" ? response.reason : response;
      const status = reason instanceof HttpError ? reason.status : reason.code;
      expect({ protocol: callers[index]?.protocol, status }).toEqual({
        protocol: callers[index]?.protocol,
        // UNAVAILABLE, or the deadline of the call.
        status: expect.toBeOneOf([503, 14, 4]),
      });
    }
    for (const caller of callers) {
      await vi.waitFor(async () => expect(await caller.ask(access_token)).toMatchObject({ active: true }));
    }
  }, 60_000);
});
