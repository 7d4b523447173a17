/**
 * A replaced refresh token that is presented after its grace window: it has been copied, so the whole authorization
 * ends. The tests move the clock, so that they can check the end of the window to the millisecond.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { decodeRefreshToken, encodeRefreshToken } from "../../../src/auth/tokens/refresh-token.ts";
import { backoffice, basic, internal, mobileApp, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** The window of mobile-app, the default. */
const window = 30;
const created = "auth.identity.created.v1";
const granted = "auth.authorization.granted.v1";
const refreshed = "auth.authorization.refreshed.v1";
const revoked = "auth.authorization.revoked.v1";
const reuseDetected = "auth.authorization.reuse_detected.v1";

describe.each(deployments)("reuse: $name", (deployment) => {
  let clock: MovableClock;
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    clock = movableClock();
    const clients = withClients(
      {
        clientId: "strict",
        clientSecret: "strict-secret",
        grantTypes: ["auth", "refresh_token"],
        tokenSettings: { refreshGraceSeconds: 0 },
      },
      {
        clientId: "patient",
        clientSecret: "patient-secret",
        grantTypes: ["auth", "refresh_token"],
        tokenSettings: { refreshGraceSeconds: 3600 },
      },
      {
        clientId: "other",
        clientSecret: "other-secret",
        grantTypes: ["auth", "refresh_token"],
      },
    );
    fleet = await startFleet(deployment, { env: clients, clock });
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
  /** Pairs of one authorization, the oldest first, each replaced after the window of the one before. */
  async function generations(pair: TokenPair, count: number): Promise<TokenPair[]> {
    const pairs = [pair];
    for (let i = 0; i < count; i += 1) {
      pairs.push(await refresh(pairs.at(-1) ?? pair));
      clock.move(window + 1);
    }
    return pairs;
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

  test("the window lasts to its last millisecond, and what comes after it ends the authorization", async () => {
    const { id, pair } = await newUser();
    const next = await refresh(pair);
    clock.move(window - 0.001);
    expect(await refresh(pair)).toEqual(next);
    await expectState([pair, next], true);
    clock.move(0.001);
    await isRefused(pair);
    await expectState([pair, next], false);
    await isRefused(next);
    const events = await fleet.delivered(id, [created, granted, refreshed, revoked, reuseDetected]);
    const authorizationId = decodeRefreshToken(pair.refresh_token)?.authorizationId;
    const data = { identityId: id, authorizationId, clientId: "mobile-app" };
    expect(events).toContainEqual(expect.objectContaining({ type: reuseDetected, subject: id, data }));
    expect(events).toContainEqual(
      expect.objectContaining({ type: revoked, data: { ...data, reason: "REVOCATION_REASON_REUSE" } }),
    );
  });

  test.each([1, 2, 3, 9, 20])("a token replaced %i generations ago ends everything", async (age) => {
    const { id, pair } = await newUser();
    const pairs = await generations(pair, age);
    const valid = pairs.at(-1) ?? pair;
    await expectState([valid], true);
    await isRefused(pairs[0] ?? pair);
    await expectState(pairs, false);
    for (const one of pairs) await isRefused(one);
    await fleet.delivered(id, [
      created,
      granted,
      ...Array<string>(age).fill(refreshed),
      revoked,
      reuseDetected,
    ]);
  });

  test("the windows of later tokens do not prolong that of an earlier one", async () => {
    const { pair } = await newUser();
    const second = await refresh(pair);
    clock.move(window / 2);
    const third = await refresh(second);
    expect(await refresh(pair)).toEqual(second);
    clock.move(window / 2);
    expect(await refresh(second)).toEqual(third);
    await isRefused(pair);
    await expectState([second, third], false);
    await isRefused(third);
  });

  test("a retry inside the window does not move its end", async () => {
    const { pair } = await newUser();
    await refresh(pair);
    for (const seconds of [10, 10, 9]) {
      clock.move(seconds);
      await refresh(pair);
    }
    clock.move(1);
    await isRefused(pair);
  });

  test("a client that refreshes faster than a window can hold has to wait, and no token is dropped for it", async () => {
    const { pair } = await newUser();
    const chain = [pair];
    for (let i = 0; i < 60; i += 1) chain.push(await refresh(chain.at(-1) ?? pair));
    const last = chain.at(-1) ?? pair;
    const refused = await fleet.next().refresh(last.refresh_token);
    expect(refused.status, refused.text).toBe(429);
    expect(Number(refused.headers.get("retry-after"))).toBeLessThanOrEqual(window);
    for (const age of [0, 1, 30, 59]) expect(await refresh(chain[age] ?? pair)).toEqual(chain[age + 1]);
    await expectState([pair, last], true);
    clock.move(window);
    await expectState([await refresh(last)], true);
  });

  test("more than sixty open windows are refused with the time to wait, and harm nothing", async () => {
    const patient = basic("patient", "patient-secret");
    const { id, pair } = await newUser(patient);
    const pairs = [pair];
    for (let i = 0; i < 60; i += 1) {
      pairs.push(await refresh(pairs.at(-1) ?? pair, patient));
      clock.move(1);
    }
    const last = pairs.at(-1) ?? pair;
    for (const api of fleet.apis) {
      const { status, body, headers } = await api.refresh(last.refresh_token, patient);
      expect({ status, body }).toMatchObject({ status: 429, body: { error: "slow_down" } });
      expect(headers.get("retry-after")).toBe(String(3600 - 60));
    }
    await expectState([pair, last], true);
    for (const [index, one] of pairs.slice(0, -1).entries()) {
      expect(await refresh(one, patient)).toEqual(pairs[index + 1]);
    }
    clock.move(3600 - 60 - 1);
    expect((await fleet.next().refresh(last.refresh_token, patient)).status).toBe(429);
    clock.move(1);
    const next = await refresh(last, patient);
    await expectState([next], true);
    await fleet.delivered(id, [created, granted, ...Array<string>(61).fill(refreshed)]);
  });

  test("a client without a window ends the authorization at the second use", async () => {
    const strict = basic("strict", "strict-secret");
    const { id, pair } = await newUser(strict);
    const next = await refresh(pair, strict);
    await expectState([pair, next], true);
    await isRefused(pair, strict);
    await expectState([pair, next], false);
    await isRefused(next, strict);
    await fleet.delivered(id, [created, granted, refreshed, revoked, reuseDetected]);
  });

  test("reuse by many at once is one event", async () => {
    const { id, pair } = await newUser();
    const next = await refresh(pair);
    clock.move(window);
    const responses = await Promise.all(
      Array.from({ length: 20 }, () => fleet.next().refresh(pair.refresh_token)),
    );
    expect(new Set(responses.map(({ status }) => status))).toEqual(new Set([400]));
    await expectState([next], false);
    await fleet.delivered(id, [created, granted, refreshed, revoked, reuseDetected]);
  });

  test("reuse racing with the rightful refresh leaves nothing active", async () => {
    const users = await Promise.all(Array.from({ length: 10 }, () => newUser()));
    const current = await Promise.all(users.map(({ pair }) => refresh(pair)));
    clock.move(window);
    const responses = await Promise.all(
      users.flatMap(({ pair }, index) => [
        fleet.next().refresh(current[index]?.refresh_token ?? ""),
        fleet.next().refresh(pair.refresh_token),
      ]),
    );
    const issued = responses.flatMap(({ status, body }) => (status === 200 ? [body as TokenPair] : []));
    await expectState([...current, ...issued], false);
    for (const pair of issued) await isRefused(pair);
  });

  test("the user's other authorizations are left alone", async () => {
    const { id, pair } = await newUser();
    const other = await fleet.next().newPair(id);
    await refresh(pair);
    clock.move(window);
    await isRefused(pair);
    await expectState([other], true);
    await refresh(other);
  });

  test("a replaced token presented by another client, or without a client, harms nothing", async () => {
    const { pair } = await newUser();
    const next = await refresh(pair);
    clock.move(window);
    await isRefused(pair, basic("other", "other-secret"));
    await isRefused(pair, backoffice);
    for (const as of [basic("mobile-app", "wrong"), internal, ""]) {
      expect((await fleet.next().refresh(pair.refresh_token, as)).status).toBe(400);
    }
    await expectState([next], true);
    await refresh(next);
  });

  test("a forgery that carries the id of the authorization harms nothing, whenever it comes", async () => {
    const { pair } = await newUser();
    const next = await refresh(pair);
    const stranger = decodeRefreshToken((await newUser()).pair.refresh_token);
    const victim = decodeRefreshToken(pair.refresh_token);
    if (!stranger || !victim) throw new Error("not refresh tokens");
    clock.move(window);
    const forged = encodeRefreshToken({
      authorizationId: victim.authorizationId,
      family: stranger.family,
      rotating: victim.rotating,
    });
    await isRefused({ ...pair, refresh_token: forged });
    await isRefused({ ...pair, refresh_token: `${pair.refresh_token.slice(0, -1)}A` });
    await expectState([next], true);
    await refresh(next);
  });

  test("what was revoked before is no reuse", async () => {
    const { id, pair } = await newUser();
    const next = await refresh(pair);
    await fleet.next().call("revokeToken", { as: mobileApp, form: { token: next.refresh_token } });
    // Inside the window as well: a retry does not bring back what has ended.
    await isRefused(pair);
    clock.move(window);
    await isRefused(pair);
    await fleet.delivered(id, [created, granted, refreshed, revoked]);
  });

  test("a refresh token expires; then it is refused and is no reuse", async () => {
    const { id, pair } = await newUser();
    const next = await refresh(pair);
    clock.move(next.refresh_expires_in);
    await isRefused(next);
    await isRefused(pair);
    await fleet.delivered(id, [created, granted, refreshed]);
  });
});

test.each(deployments)(
  "the row holds what is within the window, however often it is refreshed: $name",
  async (deployment) => {
    const store = await createAuthStore(deployment.backend);
    const clock = movableClock();
    const sizes: number[] = [];
    let last: TokenPair | undefined;
    for (const count of [10, 60]) {
      const fleet = await startFleet(deployment, { store, clock });
      last ??= await fleet.next().newPair((await fleet.next().newIdentity()).id);
      for (let i = 0; i < count; i += 1) {
        const { status, text, body } = await fleet.next().refresh(last.refresh_token);
        expect(status, text).toBe(200);
        last = body as TokenPair;
        clock.move(window / 3);
      }
      await fleet.stop();
      const statement = "select octet_length(entry::text) as bytes from auth.authorizations as entry";
      const [row] = await store.read((query) => query(statement));
      sizes.push(Number(row?.["bytes"]));
    }
    await store.drop();
    const [before = 0, after = 0] = sizes;
    expect(before).toBeGreaterThan(0);
    expect(after).toBeLessThan(before * 1.05);
  },
);
