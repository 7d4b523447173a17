/**
 * A replaced refresh token that is presented after its successor was presented, or after its grace window: it has been
 * copied, so the whole authorization ends (RFC 9700 section 4.14.2). The database's clock decides over the window, so
 * these tests wait for its end.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { decodeRefreshToken, encodeRefreshToken } from "../../../src/auth/tokens/refresh-token.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { backoffice, basic, internal, lasting, mobileApp, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const created = "auth.identity.created.v1";
const granted = "auth.authorization.granted.v1";
const refreshed = "auth.authorization.refreshed.v1";
const revoked = "auth.authorization.revoked.v1";
const reuseDetected = "auth.authorization.reuse_detected.v1";

/** Seconds of the window of the client `brief`. */
const window = 2;
const brief = basic("brief", "brief-secret");
const strict = basic("strict", "strict-secret");
const shortLived = basic("short-lived", "short-lived-secret");

const client = (clientId: string, tokenSettings: object) => ({
  clientId,
  clientSecret: `${clientId}-secret`,
  grantTypes: ["auth", "refresh_token"],
  tokenSettings,
});

describe.each(deployments)("reuse: $name", (deployment) => {
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const clients = withClients(
      client("brief", { refreshGraceSeconds: window }),
      client("strict", { refreshGraceSeconds: 0 }),
      client("short-lived", { refreshTokenSeconds: 2 }),
      client("other", {}),
    );
    fleet = await startFleet(deployment, { env: clients });
    cleanup.defer(() => fleet.stop());
  });

  async function newUser(as = mobileApp) {
    const { id } = await fleet.next().newIdentity();
    return { id, pair: await fleet.next().newPair(id, as) };
  }
  async function refresh(pair: TokenPair, as = mobileApp): Promise<TokenPair> {
    const { status, text, body } = await fleet.next().refresh(pair.refresh_token, as);
    expect(status, text).toBe(200);
    return body as TokenPair;
  }
  /** Pairs of one authorization, the oldest first, each replaced by the next. */
  async function generations(pair: TokenPair, count: number): Promise<TokenPair[]> {
    const pairs = [pair];
    for (let i = 0; i < count; i += 1) pairs.push(await refresh(pairs.at(-1) ?? pair));
    return pairs;
  }
  /** A user with a token that was replaced, one that was presented and replaced in its turn, and the current one. */
  async function newReplaced() {
    const { id, pair } = await newUser();
    const second = await refresh(pair);
    return { id, pair, second, current: await refresh(second) };
  }
  async function isRefused({ refresh_token }: TokenPair, as = mobileApp): Promise<void> {
    for (const api of fleet.apis) {
      const { status, body } = await api.refresh(refresh_token, as);
      expect({ status, body }).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
    }
  }
  async function expectState(pairs: readonly TokenPair[], active: boolean): Promise<void> {
    for (const api of fleet.apis) {
      for (const pair of pairs) expect((await api.introspect(pair.access_token)).active).toBe(active);
    }
  }

  test("within the window a retry gets the same pair and does not prolong it; after it the authorization ends", async () => {
    const { id, pair } = await newUser(brief);
    const started = performance.now();
    const next = await refresh(pair, brief);
    for (;;) {
      const { status, body } = await fleet.next().refresh(pair.refresh_token, brief);
      if (status === 400) break;
      expect({ status, body }).toMatchObject({ status: 200, body: lasting(next) });
      // It begins when the commit has been seen, within half a second; the rest is for a slow machine.
      expect(performance.now() - started).toBeLessThan((window + 5) * 1000);
    }
    expect(performance.now() - started).toBeGreaterThan(window * 1000);
    await expectState([pair, next], false);
    await isRefused(next, brief);
    const events = await fleet.delivered(id, [created, granted, refreshed, revoked, reuseDetected]);
    const authorizationId = decodeRefreshToken(pair.refresh_token)?.authorizationId;
    const presented = { caller: "brief", requestId: expect.stringMatching(/./) };
    const data = { identityId: id, authorizationId, clientId: "brief", ...presented };
    expect(events).toContainEqual(expect.objectContaining({ type: reuseDetected, subject: id, data }));
    expect(events).toContainEqual(
      expect.objectContaining({ type: revoked, data: { ...data, reason: "REVOCATION_REASON_REUSE" } }),
    );
  });

  test.each([2, 3, 9, 20])(
    "a token replaced %i generations ago ends everything, inside its window too: its successor was presented",
    async (age) => {
      const { id, pair } = await newUser();
      const pairs = await generations(pair, age);
      await expectState([pairs.at(-1) ?? pair], true);
      await isRefused(pair);
      await expectState(pairs, false);
      for (const one of pairs) await isRefused(one);
      await fleet.delivered(id, [
        created,
        granted,
        ...Array<string>(age).fill(refreshed),
        revoked,
        reuseDetected,
      ]);
    },
  );

  test("a client without a window ends the authorization at the second use", async () => {
    const { id, pair } = await newUser(strict);
    const next = await refresh(pair, strict);
    await expectState([pair, next], true);
    // As soon as the commit of the rotation has been seen; until then a retry might be that of a lost response.
    await waitFor(async () =>
      expect((await fleet.next().refresh(pair.refresh_token, strict)).status).toBe(400),
    );
    await expectState([pair, next], false);
    await isRefused(next, strict);
    await fleet.delivered(id, [created, granted, refreshed, revoked, reuseDetected]);
  });

  test("reuse by many at once is one event", async () => {
    const { id, pair, current } = await newReplaced();
    const responses = await Promise.all(
      Array.from({ length: 20 }, () => fleet.next().refresh(pair.refresh_token)),
    );
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([400]));
    await expectState([current], false);
    await fleet.delivered(id, [created, granted, refreshed, refreshed, revoked, reuseDetected]);
  });

  test("reuse racing with the rightful refresh leaves nothing active", async () => {
    const users = await Promise.all(Array.from({ length: 10 }, () => newReplaced()));
    const responses = await Promise.all(
      users.flatMap(({ pair, current }) => [
        fleet.next().refresh(current.refresh_token),
        fleet.next().refresh(pair.refresh_token),
      ]),
    );
    const issued = responses.flatMap(({ status, body }) => (status === 200 ? [body as TokenPair] : []));
    await expectState([...users.map(({ current }) => current), ...issued], false);
    for (const pair of issued) await isRefused(pair);
  });

  test("the user's other authorizations are left alone", async () => {
    const { id, pair } = await newReplaced();
    const other = await fleet.next().newPair(id);
    await isRefused(pair);
    await expectState([other], true);
    await refresh(other);
  });

  test("a replaced token presented by another client, or without a client, harms nothing", async () => {
    const { pair, current } = await newReplaced();
    await isRefused(pair, basic("other", "other-secret"));
    await isRefused(pair, backoffice);
    for (const as of [basic("backend", "wrong"), internal, ""]) {
      expect((await fleet.next().refresh(pair.refresh_token, as)).status).toBe(400);
    }
    await expectState([current], true);
    await refresh(current);
  });

  test("a forgery that carries the id of the authorization harms nothing, whenever it comes", async () => {
    const { pair, current } = await newReplaced();
    const stranger = decodeRefreshToken((await newUser()).pair.refresh_token);
    const victim = decodeRefreshToken(pair.refresh_token);
    if (!stranger || !victim) throw new Error("not refresh tokens");
    const forged = encodeRefreshToken({
      authorizationId: victim.authorizationId,
      family: stranger.family,
      rotating: victim.rotating,
    });
    await isRefused({ ...pair, refresh_token: forged });
    const { refresh_token } = pair;
    const altered = refresh_token.slice(0, -1) + (refresh_token.endsWith("A") ? "B" : "A");
    await isRefused({ ...pair, refresh_token: altered });
    await expectState([current], true);
    await refresh(current);
  });

  test("what was revoked before is no reuse, and a retry does not bring it back", async () => {
    const { id, pair, second, current } = await newReplaced();
    await fleet.next().call("revokeToken", { as: mobileApp, form: { token: current.refresh_token } });
    await isRefused(second);
    await isRefused(pair);
    await fleet.delivered(id, [created, granted, refreshed, refreshed, revoked]);
  });

  test("a refresh token expires; then it is refused and is no reuse", async () => {
    const { id, pair } = await newUser(shortLived);
    const next = await refresh(pair, shortLived);
    await new Promise((resolve) => setTimeout(resolve, 2_100));
    await isRefused(next, shortLived);
    await isRefused(pair, shortLived);
    await fleet.delivered(id, [created, granted, refreshed]);
  });
});

test.each(backends)(
  "the row of an authorization is small after ten refreshes, and stays so: %s",
  async (backend) => {
    const store = await createAuthStore(backend);
    const sizes: number[] = [];
    let last: TokenPair | undefined;
    for (const count of [10, 60]) {
      // In this process: which one it is makes no difference to a row.
      const one = { name: backend, backend, servers: 1 };
      const fleet = await startFleet(one, { store, clock: systemClock });
      last ??= await fleet.next().newPair((await fleet.next().newIdentity()).id);
      for (let i = 0; i < count; i += 1) {
        const { status, text, body } = await fleet.next().refresh(last.refresh_token);
        expect(status, text).toBe(200);
        last = body as TokenPair;
      }
      await fleet.stop();
      // With the header of the row.
      const statement = "select pg_column_size(entry.*) as bytes from auth.authorizations as entry";
      const [row] = await store.read((query) => query(statement));
      sizes.push(Number(row?.["bytes"]));
    }
    await store.drop();
    const [before = 0, after] = sizes;
    expect(before).toBeGreaterThan(0);
    expect(before).toBeLessThanOrEqual(400);
    expect(after).toBe(before);
  },
);
