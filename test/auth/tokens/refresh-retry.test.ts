/** What a retry of a refresh says of its pair, and what it gets where the access token of that pair is dead by then. */
import { decodeJwt } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic, lasting, type TokenPair } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const as = basic("patient", "patient-secret");
const env = withClients({
  clientId: "patient",
  clientSecret: "patient-secret",
  grantTypes: ["auth", "refresh_token"],
  scopes: ["profile", "orders"],
  // By the database's clock, which the tests do not move.
  tokenSettings: { accessTokenSeconds: 900, refreshTokenSeconds: 3600, refreshGraceSeconds: 900 },
});

describe.each(backends)("a retry of a refresh, on %s", (backend) => {
  let store: AuthStore;
  let clock: MovableClock;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    clock = movableClock();
    const server = await startAuthServer(backend, { env: { ...store.env, ...env }, clock });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  /** Refreshes once, for a part of the scopes. */
  async function refreshed() {
    const { refresh_token: presented } = await api.newPair((await api.newIdentity()).id, as);
    const form = { grant_type: "refresh_token", refresh_token: presented, scope: "profile" };
    return { presented, first: (await api.token(form, as)).body as TokenPair };
  }
  async function retry(presented: string): Promise<TokenPair> {
    const { status, text, body } = await api.refresh(presented, as);
    expect(status, text).toBe(200);
    return body as TokenPair;
  }
  const revoke = async (token: string) =>
    expect((await api.call("revokeToken", { as, form: { token } })).status).toBe(200);
  const isActive = async (token: string) => (await api.introspect(token)).active;

  /** Checks that the pair is the first one but for an access token of its own, which is as good as any. */
  async function expectSignedAnew(pair: TokenPair, first: TokenPair): Promise<void> {
    expect(pair).toMatchObject({ ...lasting(first), access_token: expect.any(String), expires_in: 900 });
    expect(pair.access_token).not.toBe(first.access_token);
    const { iss, sub, aud, scope } = decodeJwt(first.access_token);
    expect(decodeJwt(pair.access_token)).toMatchObject({
      ...{ iss, sub, aud, scope },
      exp: Math.floor(clock.now() / 1000) + 900,
    });
    expect(await api.introspect(pair.access_token)).toMatchObject({ active: true, scope: "profile" });
  }

  test("gets the same tokens, and says how many seconds are left of them", async () => {
    const { presented, first } = await refreshed();
    expect(first).toMatchObject({ expires_in: 900, refresh_expires_in: 3600 });
    clock.move(20);
    const again = await retry(presented);
    expect(again).toMatchObject({ ...lasting(first), expires_in: 880 });
    expect(again.refresh_expires_in).toBeGreaterThan(3500);
    expect(again.refresh_expires_in).toBeLessThanOrEqual(3600);
  });

  test.runIf(backend === "PostgreSQL")(
    "says what the database's clock leaves of the refresh token, at least a second",
    async () => {
      const { presented } = await refreshed();
      const leave = (interval: string) =>
        store.read((query) =>
          query(`update auth.authorizations set expires_at = clock_timestamp() + interval '${interval}'
            where id = (select max(id::text)::uuid from auth.authorizations)`),
        );
      await leave("100.9 seconds");
      expect((await retry(presented)).refresh_expires_in).toBeLessThanOrEqual(101);
      await leave("-1 second");
      expect((await api.refresh(presented, as)).status).toBe(400);
    },
  );

  test("gets an access token that is signed anew where the first one has expired, also in parallel", async () => {
    const { presented, first } = await refreshed();
    clock.move(900);
    const retries = await Promise.all(Array.from({ length: 5 }, () => retry(presented)));
    for (const pair of retries) await expectSignedAnew(pair, first);
  });

  test("gets an access token that is signed anew where the first one was revoked, and can be revoked as any", async () => {
    const { presented, first } = await refreshed();
    await revoke(first.access_token);
    const second = await retry(presented);
    await expectSignedAnew(second, first);
    await revoke(second.access_token);
    expect(await isActive(second.access_token)).toBe(false);
    const third = await retry(presented);
    await expectSignedAnew(third, first);
    expect(await isActive(first.access_token)).toBe(false);
    await revoke(first.refresh_token);
    expect(await isActive(third.access_token)).toBe(false);
    expect((await api.refresh(presented, as)).status).toBe(400);
  });
});
