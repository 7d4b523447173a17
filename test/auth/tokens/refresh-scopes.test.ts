/** The scopes of a refresh, where the client is permitted less than when the authorization was granted. */
import { decodeJwt } from "jose";
import { describe, expect, test } from "vitest";
import { type AuthApi, basic, lasting, type TokenPair } from "../../support/auth-api.ts";
import { deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { createAuthStore } from "../../support/auth-store.ts";

const as = basic("shrinking", "shrinking-secret");
const permitted = (...scopes: string[]) =>
  withClients({
    clientId: "shrinking",
    clientSecret: "shrinking-secret",
    grantTypes: ["auth", "refresh_token"],
    scopes,
    // Longer than the client takes to start anew.
    tokenSettings: { refreshGraceSeconds: 600 },
  });

describe.each(deployments)("a client that may do less than before: $name", (deployment) => {
  test("gets no more by a refresh than it may now, and what it may no longer do is refused without harm", async () => {
    const store = await createAuthStore(deployment.backend);
    const before = await startFleet(deployment, { store, env: permitted("profile", "orders") });
    const [first] = before.apis;
    const { id } = await first.newIdentity();
    const granted = await first.newPair(id, as);
    expect(decodeJwt(granted.access_token)["scope"]).toBe("profile orders");
    const other = await first.newPair(id, as);
    const successor = (await first.refresh(other.refresh_token, as)).body as TokenPair;
    await before.stop();

    const after = await startFleet(deployment, { store, env: permitted("profile") });
    const refresh = (api: AuthApi, { refresh_token }: TokenPair, scope?: string) =>
      api.token({ grant_type: "refresh_token", refresh_token, ...(scope && { scope }) }, as);
    const refused = { status: 400, body: { error: "invalid_scope" } };
    for (const api of after.apis) {
      for (const scope of ["orders", "profile orders"]) {
        expect(await refresh(api, granted, scope)).toMatchObject(refused);
        // The same holds for a retry.
        expect(await refresh(api, other, scope)).toMatchObject(refused);
      }
    }
    const next = await refresh(after.next(), granted);
    expect(next.status, next.text).toBe(200);
    const pair = next.body as TokenPair;
    expect(decodeJwt(pair.access_token)["scope"]).toBe("profile");
    expect(await after.next().introspect(pair.access_token)).toMatchObject({
      active: true,
      scope: "profile",
    });
    // The authorizations live on; the retry still gets its pair.
    expect((await refresh(after.next(), other, "profile")).body).toMatchObject(lasting(successor));
    expect(await after.next().introspect(successor.access_token)).toMatchObject({ active: true });
    const last = (await refresh(after.next(), successor)).body as TokenPair;
    expect(decodeJwt(last.access_token)["scope"]).toBe("profile");
    await after.stop();
    await store.drop();
  });
});
