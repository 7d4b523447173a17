/** A database that hangs: nobody waits for ever, nothing is called active, and afterwards all is as before. */
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic, internal, mobileApp } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../support/auth-store.ts";
import { type DatabaseGate, openDatabaseGate } from "../support/database-gate.ts";
import { HttpError, type Introspector, introspectors } from "../support/introspectors.ts";
import { backends } from "../support/servers.ts";
import { stopwatch } from "../support/stopwatch.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

/** Milliseconds within which everything is answered. */
const bound = 12_000;
const other = basic("other", "other-secret");
const clients = withClients({ clientId: "other", clientSecret: "other-secret", grantTypes: ["auth"] });

describe.runIf(backends.includes("PostgreSQL"))("where PostgreSQL hangs", () => {
  let store: AuthStore;
  let gate: DatabaseGate;
  let server: AuthServer;
  let api: AuthApi;
  let askers: readonly Introspector[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    gate = await openDatabaseGate(store.env["DB_HOST"] ?? "", Number(store.env["DB_PORT"]));
    cleanup.defer(() => gate.close());
    const env = { ...store.env, ...clients, DB_HOST: "127.0.0.1", DB_PORT: String(gate.port) };
    server = await startAuthServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    askers = introspectors(server);
    cleanup.defer(() => {
      for (const asker of askers) asker.close();
    });
  });

  test("every operation is answered 503 in time, whoever asks, and works again afterwards", async () => {
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
      // A client of whom this process has not heard lately.
      ["generateTokens", { as: other, form: { grant_type: "auth", auth_id: id } }],
      [
        "generateTokens",
        { as: mobileApp, form: { grant_type: "refresh_token", refresh_token: pair.refresh_token } },
      ],
      ["introspectToken", { as: internal, form: { token: pair.access_token } }],
      ["introspectToken", { as: other, form: { token: pair.access_token } }],
      ["revokeToken", { as: mobileApp, form: { token: pair.refresh_token } }],
    ];
    // All connections of the pool are open: a new one would be given up sooner.
    await Promise.all(Array.from({ length: 40 }, () => api.newPair(id)));
    const thaw = gate.freeze();
    const waited = stopwatch();
    const answers = await Promise.all(
      calls.map(async (call) => {
        const { status } = await api.call(...call);
        return { operation: call[0], status, inTime: waited() < bound };
      }),
    );
    thaw();
    expect(answers).toEqual(calls.map(([operation]) => ({ operation, status: 503, inTime: true })));
    await waitFor(async () => {
      const { access_token } = await api.newPair((await api.newIdentity()).id);
      expect(await api.introspect(access_token)).toMatchObject({ active: true });
    });
  });

  test("introspection is refused over every protocol in time, and is never active", async () => {
    const { access_token } = await api.newPair((await api.newIdentity()).id);
    for (const asker of askers) expect(await asker.ask(access_token)).toMatchObject({ active: true });
    const thaw = gate.freeze();
    const waited = stopwatch();
    const answers = await Promise.allSettled(askers.map((asker) => asker.ask(access_token)));
    const took = waited();
    thaw();
    expect(took).toBeLessThan(bound);
    for (const [index, answer] of answers.entries()) {
      const reason = answer.status === "rejected" ? answer.reason : answer;
      const status = reason instanceof HttpError ? reason.status : reason.code;
      expect({ protocol: askers[index]?.protocol, status }).toEqual({
        protocol: askers[index]?.protocol,
        // UNAVAILABLE, or the deadline of the call.
        status: expect.toBeOneOf([503, 14, 4]),
      });
    }
    for (const asker of askers) {
      await waitFor(async () => expect(await asker.ask(access_token)).toMatchObject({ active: true }));
    }
  });
});
