import { beforeAll, describe, expect, test } from "vitest";
import {
  type AuthApi,
  authApi,
  basic,
  internal,
  lasting,
  mobileApp,
  type TokenPair,
} from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore, rowCounts } from "../support/auth-store.ts";
import { otpVerifier } from "../support/otp.ts";
import { backends } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

describe.each(backends)("the janitor of a running server on %s", (backend) => {
  let store: AuthStore;
  let server: AuthServer;
  let api: AuthApi;
  const brief = basic("brief", "brief-secret");
  /** Seconds by which the clock of the process is wrong. */
  const ahead = 60 * 60;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    const clients = withClients({
      clientId: "brief",
      clientSecret: "brief-secret",
      grantTypes: ["auth", "refresh_token"],
      tokenSettings: { accessTokenSeconds: 60, refreshTokenSeconds: 120, refreshGraceSeconds: 10 },
    });
    const env = { ...store.env, ...clients, JANITOR_INTERVAL_SECONDS: "1" };
    server = await startAuthServer(backend, { env, clock: { now: () => Date.now() + ahead * 1000 } });
    api = authApi(server.base);
  });

  /** A proof by a verifier whose clock is right. The embedded database, and so the server, has the process's clock. */
  async function prove(phone: string): Promise<string> {
    if (backend === "PGlite") return otpVerifier(server.origin).prove(phone);
    const right = await startAuthServer(backend, { env: server.env });
    try {
      return await otpVerifier(right.origin).prove(phone);
    } finally {
      await right.stop();
    }
  }

  test("where the clock of the process is an hour ahead, nothing that is live or revoked is removed", async () => {
    const { id, phone } = await api.newIdentity();
    const { access_token } = await api.newPair(id);
    await api.call("revokeToken", { as: internal, form: { token: access_token } });
    const form = { grant_type: "phone_otp_token", phone, otp_verification_token: await prove(phone) };
    const kept = (await api.token(form)).body as TokenPair;
    expect(kept).toHaveProperty("access_token");
    const first = await api.newPair(id, mobileApp);
    const second = (await api.refresh(first.refresh_token)).body as TokenPair;
    const short = await api.newPair(id, brief);
    // Several rounds.
    await new Promise((resolve) => setTimeout(resolve, 3_500));
    for (const pair of [kept, second, short]) {
      expect(await api.introspect(pair.access_token)).toMatchObject({ active: true });
    }
    expect((await api.refresh(first.refresh_token)).body).toMatchObject(lasting(second));
    expect(await api.introspect(access_token)).toEqual({ active: false });
    expect(await api.token(form)).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
    await server.stop();
    expect(await store.read(rowCounts)).toMatchObject({
      "auth.authorizations": 4,
      "auth.replaced_tokens": 1,
      "auth.revoked_access_tokens": 1,
      "auth.redeemed_otp_proofs": 1,
    });
  });
});
