/** Refresh tokens that are bound to an app's key: stolen without it, with a copy of it, and after the app was killed. */
import { beforeAll, describe, expect, test } from "vitest";
import { decodeRefreshToken } from "../../../src/auth/tokens/refresh-token.ts";
import type { Answer, TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { appClient, newKeyPair, type PublicApp, publicApp } from "../../support/public-app.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const late = "auth.authorization.refresh_repeated_late.v1";
const reuse = "auth.authorization.reuse_detected.v1";

describe.each(deployments)("bound refresh tokens: $name", (deployment) => {
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    // Each repeat at "hasty" is later than its window.
    const hasty = appClient("hasty", { tokenSettings: { refreshGraceSeconds: 0 } });
    fleet = await startFleet(deployment, {
      env: {
        ...withClients(appClient("app"), hasty),
        ...generousLimits,
        JANITOR_INTERVAL_SECONDS: "1",
      },
    });
    cleanup.defer(() => fleet.stop());
  });

  async function signedIn(clientId: string) {
    const { id, phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const [{ settings }] = fleet.servers;
    const app = publicApp({
      ...{ clientId, issuer: settings.issuer, keys: await newKeyPair() },
      next: () => fleet.next(),
      otp: (phone) => sentCode(fleet.servers, phone),
    });
    return { id, app, pair: await app.signIn(phone) };
  }
  const pairOf = ({ status, text, body }: Answer): TokenPair => {
    expect(status, text).toBe(200);
    return body as TokenPair;
  };
  const refreshed = async (app: PublicApp, { refresh_token }: TokenPair) =>
    pairOf(await app.refresh(refresh_token));
  async function expectRefused(app: PublicApp, { refresh_token }: TokenPair): Promise<void> {
    const { status, body } = await app.refresh(refresh_token);
    expect({ status, body }).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
  }
  const isActive = async ({ access_token }: TokenPair) =>
    (await fleet.next().introspect(access_token)).active;
  const typesOf = (id: string, type: string) =>
    fleet.events(id).filter((event) => event.type === type).length;

  test("one that is stolen without its key is refused, before and after its use, and its owner goes on", async () => {
    const { app, pair } = await signedIn("app");
    const thief = app.withKeys(await newKeyPair());
    await expectRefused(thief, pair);
    const next = await refreshed(app, pair);
    for (const stolen of [pair, next]) await expectRefused(thief, stolen);
    const { refresh_token } = await refreshed(app, next);
    expect(refresh_token).not.toBe(next.refresh_token);
    await expectRefused(thief, next);
    expect(await isActive(next)).toBe(true);
  });

  test("without a proof it is invalid_request, and with a secret's client invalid_grant", async () => {
    const { pair } = await signedIn("app");
    const form = { grant_type: "refresh_token", refresh_token: pair.refresh_token };
    const without = await fleet.next().call("generateTokens", { form: { client_id: "app", ...form } });
    expect(without).toMatchObject({ status: 400, body: { error: "invalid_request" } });
    expect(await fleet.next().token(form)).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
    expect(await isActive(pair)).toBe(true);
  });

  test("the current token and the one before it end the authorization, at revoke; an older one is unknown", async () => {
    const { app, pair } = await signedIn("app");
    const before = await refreshed(app, pair);
    const current = await refreshed(app, before);
    const refused = await app.revoke(pair.refresh_token);
    expect(refused).toMatchObject({ status: 400, body: { error: "invalid_token" } });
    expect(await isActive(current)).toBe(true);
    for (const { refresh_token } of [before, current, current])
      expect((await app.revoke(refresh_token)).status).toBe(200);
    expect(await isActive(current)).toBe(false);
  });

  test("parallel uses rotate once: each gets the same refresh token", async () => {
    const { app, pair } = await signedIn("app");
    const pairs = await Promise.all(Array.from({ length: 20 }, () => refreshed(app, pair)));
    expect(new Set(pairs.map(({ refresh_token }) => refresh_token)).size).toBe(1);
    for (const one of pairs) expect(await isActive(one)).toBe(true);
  });

  test("an app that was killed after the rotation gets the same refresh token late, and goes on", async () => {
    const { id, app, pair } = await signedIn("hasty");
    const lost = await refreshed(app, pair);
    const again = await refreshed(app, pair);
    expect(again.refresh_token).toBe(lost.refresh_token);
    expect(again.access_token).not.toBe(lost.access_token);
    expect((await refreshed(app, pair)).refresh_token).toBe(lost.refresh_token);
    const next = await refreshed(app, again);
    await expect.poll(() => typesOf(id, late)).toBe(1);
    expect(fleet.events(id)).toContainEqual(
      expect.objectContaining({
        ...{ type: late, subject: id },
        data: {
          ...{ identityId: id, clientId: "hasty", caller: "hasty", requestId: expect.stringMatching(/./) },
          authorizationId: decodeRefreshToken(pair.refresh_token)?.authorizationId,
        },
      }),
    );
    // Its successor was used.
    await expectRefused(app, pair);
    expect(await isActive(next)).toBe(false);
  });

  test.runIf(deployment.backend === "PostgreSQL")(
    "a day later too, after the janitor has run, and while nothing of it is in the table that it goes through",
    async () => {
      const { id, app, pair } = await signedIn("app");
      const lost = await refreshed(app, pair);
      const { authorizationId } = decodeRefreshToken(pair.refresh_token) ?? expect.fail("not a token");
      const apart = await fleet.store.read(async (query) => {
        await query(`update auth.authorizations set replaced_at = replaced_at - interval '1 day'
          where id = '${authorizationId}'`);
        await query(`insert into auth.sent_codes (id, prefix, sent_at)
          values (gen_random_uuid(), 'of long ago', now() - interval '2 days')`);
        return query(`select from auth.replaced_tokens where authorization_id = '${authorizationId}'`);
      });
      expect(apart).toHaveLength(0);
      const ofLongAgo = "select from auth.sent_codes where prefix = 'of long ago'";
      await expect.poll(() => fleet.store.read((query) => query(ofLongAgo))).toHaveLength(0);
      expect((await refreshed(app, pair)).refresh_token).toBe(lost.refresh_token);
      await expect.poll(() => typesOf(id, late)).toBe(1);
    },
  );

  test("a copied key ends the authorization by the third rotation in a row", async () => {
    const { id, app, pair } = await signedIn("hasty");
    const thief = app.withKeys(app.keys);
    const first = await refreshed(app, pair);
    expect((await refreshed(thief, pair)).refresh_token).toBe(first.refresh_token);
    const second = await refreshed(thief, first);
    expect((await refreshed(app, first)).refresh_token).toBe(second.refresh_token);
    const third = await refreshed(app, second);
    await expectRefused(thief, second);
    for (const one of [pair, first, second, third]) expect(await isActive(one)).toBe(false);
    await expectRefused(app, third);
    await expect.poll(() => [typesOf(id, late), typesOf(id, reuse)]).toEqual([3, 1]);
  });

  test("a rotation without a late repeat between begins the count anew", async () => {
    const { app, pair } = await signedIn("hasty");
    let current = pair;
    for (const isRepeated of [true, true, false, true, true]) {
      const next = await refreshed(app, current);
      if (isRepeated) await refreshed(app, current);
      current = next;
    }
    expect(await isActive(await refreshed(app, current))).toBe(true);
  });
});
