/**
 * Grants racing with a change that must refuse them: a deletion, a change of password, a client that is no longer
 * listed, a proof that another request redeems. No order of events leaves a token active that should not be.
 */
import { setTimeout } from "node:timers/promises";
import { beforeAll, describe, expect, test } from "vitest";
import { grantTypes } from "../../../src/auth/client-settings.ts";
import { decodeRefreshToken, hashPart } from "../../../src/auth/tokens/refresh-token.ts";
import {
  type Answer,
  type AuthApi,
  authApi,
  basic,
  internal,
  mobileApp,
  newPhone,
  type TokenPair,
} from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { type DatabaseGate, openDatabaseGate } from "../../support/database-gate.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const password = "correct horse battery staple";
const invalidGrant = { status: 400, body: expect.objectContaining({ error: "invalid_grant" }) };

function issued(responses: readonly Answer[]): TokenPair[] {
  return responses.flatMap(({ status, body }) => (status === 200 ? [body as TokenPair] : []));
}
const throughGate = ({ port }: DatabaseGate) => ({ DB_HOST: "127.0.0.1", DB_PORT: String(port) });
const deleteIdentity = (api: AuthApi, id: string) =>
  api.call("deleteIdentity", { as: internal, path: { id } });
const setPassword = (api: AuthApi, id: string, to: string) =>
  api.call("setIdentityPassword", { as: internal, path: { id }, json: { password: to } });

describe.each(deployments)("grants in flight: $name", (deployment) => {
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fleet = await startFleet(deployment);
    cleanup.defer(() => fleet.stop());
  });

  async function expectDead(pairs: readonly TokenPair[]): Promise<void> {
    for (const { access_token, refresh_token } of pairs) {
      expect(await fleet.next().introspect(access_token)).toEqual({ active: false });
      expect(await fleet.next().refresh(refresh_token)).toMatchObject(invalidGrant);
    }
  }

  test("an OTP proof redeemed fifty times at once gives exactly one pair", async () => {
    const { phone } = await fleet.next().newIdentity();
    const proof = await otpVerifier(fleet.servers[0].origin).prove(phone);
    const form = { grant_type: "phone_otp_token", phone, otp_verification_token: proof };
    const responses = await Promise.all(Array.from({ length: 50 }, () => fleet.next().token(form)));
    const [pair, ...more] = issued(responses);
    expect(more).toEqual([]);
    expect(responses.filter(({ status }) => status === 400)).toHaveLength(49);
    expect(await fleet.next().introspect(pair?.access_token ?? "")).toMatchObject({ active: true });
  });

  test("an identity deleted while grants and refreshes are in flight leaves nothing active", async () => {
    for (let round = 0; round < 10; round += 1) {
      const { id, phone } = await fleet.next().newIdentity();
      await setPassword(fleet.next(), id, password);
      const proof = await otpVerifier(fleet.servers[0].origin).prove(phone);
      const first = await fleet.next().newPair(id);
      const requests: Record<string, string>[] = [
        { grant_type: "auth", auth_id: id },
        { grant_type: "refresh_token", refresh_token: first.refresh_token },
        { grant_type: "password", username: id, password },
        { grant_type: "phone_otp_token", phone, otp_verification_token: proof },
      ];
      const send = (form: Record<string, string>) => fleet.next().token(form);
      const [before, deletion, after] = await Promise.all([
        Promise.all([...requests, ...requests].map(send)),
        deleteIdentity(fleet.next(), id),
        Promise.all(requests.map(send)),
      ]);
      expect(deletion.status).toBe(204);
      await expectDead([first, ...issued(before), ...issued(after)]);
    }
  });

  test("a password changed while it is being used leaves nothing active that it has opened", async () => {
    for (let round = 0; round < 8; round += 1) {
      const { id } = await fleet.next().newIdentity();
      await setPassword(fleet.next(), id, password);
      const use = () => fleet.next().token({ grant_type: "password", username: id, password });
      const [before, change, after] = await Promise.all([
        Promise.all([use(), use()]),
        setPassword(fleet.next(), id, "another password"),
        Promise.all([use(), use()]),
      ]);
      expect(change.status).toBe(204);
      await expectDead([...issued(before), ...issued(after)]);
    }
  });
});

describe.runIf(backends.includes("PostgreSQL"))("a grant held up on its way to PostgreSQL", () => {
  let store: AuthStore;
  let gate: DatabaseGate;
  /** Its connections to the database go through the gate. */
  let slow: AuthServer;
  let fast: AuthServer;
  let [slowApi, fastApi]: AuthApi[] = [];
  const racer = basic("racer", "racer-secret");
  /** Identifies the statement that creates the authorization: no other statement of a grant contains it. */
  const scope = "race-scope";
  const clients = withClients({
    clientId: "racer",
    clientSecret: "racer-secret",
    grantTypes,
    scopes: [scope],
  });
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    gate = await openDatabaseGate(store.env["DB_HOST"] ?? "", Number(store.env["DB_PORT"]));
    cleanup.defer(() => gate.close());
    fast = await startAuthServer("PostgreSQL", { env: { ...store.env, ...clients } });
    cleanup.defer(() => fast.stop());
    slow = await startAuthServer("PostgreSQL", {
      env: { ...store.env, ...clients, ...throughGate(gate) },
    });
    cleanup.defer(() => slow.stop());
    fastApi = authApi(fast.base);
    slowApi = authApi(slow.base, fastApi.contract);
  });

  function apis() {
    return { here: slowApi ?? expect.fail("not started"), there: fastApi ?? expect.fail("not started") };
  }

  /** The parameters of a grant, and a change at the other server that must refuse it. */
  const cases: Record<
    string,
    (
      id: string,
      phone: string,
    ) => Promise<{ form: Record<string, string>; undo(): Promise<{ status: number }> }>
  > = {
    "auth, the identity deleted": async (id) => ({
      form: { grant_type: "auth", auth_id: id },
      undo: () => deleteIdentity(apis().there, id),
    }),
    "password, the identity deleted": async (id) => ({
      form: { grant_type: "password", username: id, password },
      undo: () => deleteIdentity(apis().there, id),
    }),
    "password, the password changed": async (id) => ({
      form: { grant_type: "password", username: id, password },
      undo: () => setPassword(apis().there, id, "another password"),
    }),
    "password, the password removed": async (id) => ({
      form: { grant_type: "password", username: id, password },
      undo: () => apis().there.call("removeIdentityPassword", { as: internal, path: { id } }),
    }),
    "phone_otp, the identity deleted": async (id, phone) => ({
      form: { grant_type: "phone_otp", phone, password: await otpVerifier(slow.origin).send(phone) },
      undo: () => deleteIdentity(apis().there, id),
    }),
    "phone_otp_token, the identity deleted": async (id, phone) => ({
      form: {
        grant_type: "phone_otp_token",
        phone,
        otp_verification_token: await otpVerifier(slow.origin).prove(phone),
      },
      undo: () => deleteIdentity(apis().there, id),
    }),
  };

  async function newUser() {
    const user = await apis().there.newIdentity();
    await setPassword(apis().there, user.id, password);
    return user;
  }
  function authorizationsOf(id: string) {
    return store.read((query) => query(`select * from auth.authorizations where identity_id = '${id}'`));
  }

  test.each(Object.keys(cases))("%s before the grant is stored: it is refused", async (name) => {
    const { id, phone } = await newUser();
    const { form, undo } = (await cases[name]?.(id, phone)) ?? expect.fail(name);
    const holding = gate.hold(scope, "before");
    const response = apis().here.token({ ...form, scope }, racer);
    const held = await holding;
    expect((await undo()).status).toBe(204);
    held.release();
    expect(await response).toMatchObject(invalidGrant);
    expect(await authorizationsOf(id)).toEqual([]);
  });

  test.each(Object.keys(cases))("%s after the grant is stored: its pair is dead on arrival", async (name) => {
    const { id, phone } = await newUser();
    const { form, undo } = (await cases[name]?.(id, phone)) ?? expect.fail(name);
    const holding = gate.hold(scope, "after");
    const responding = apis().here.token({ ...form, scope }, racer);
    const held = await holding;
    await waitFor(async () => expect(await authorizationsOf(id)).toHaveLength(1));
    expect((await undo()).status).toBe(204);
    held.release();
    const response = await responding;
    const [pair] = issued([response]);
    expect(response.status).toBe(200);
    for (const api of Object.values(apis())) {
      expect(await api.introspect(pair?.access_token ?? "")).toEqual({ active: false });
      expect(await api.refresh(pair?.refresh_token ?? "", racer)).toMatchObject(invalidGrant);
    }
  });

  test.each(["phone_otp", "phone_otp_token"])(
    "%s: a phone that becomes another's while the grant is on its way opens nothing",
    async (grant_type) => {
      const { id, phone } = await newUser();
      const verifier = otpVerifier(slow.origin);
      const secret =
        grant_type === "phone_otp"
          ? { password: await verifier.send(phone) }
          : { otp_verification_token: await verifier.prove(phone) };
      const holding = gate.hold(scope, "before");
      const response = apis().here.token({ grant_type, phone, scope, ...secret }, racer);
      const held = await holding;
      const json = { phone: newPhone() };
      const path = { id };
      expect((await apis().there.call("updateIdentity", { as: internal, path, json })).status).toBe(204);
      held.release();
      expect(await response).toMatchObject(invalidGrant);
      expect(await authorizationsOf(id)).toEqual([]);
    },
  );

  test("a code whose guess cannot be counted for three seconds is not judged, and works afterwards", async () => {
    const { phone } = await newUser();
    // One that has counted nothing before, so that the statement goes to PostgreSQL as text.
    const fresh = await startAuthServer("PostgreSQL", {
      env: { ...store.env, ...clients, ...throughGate(gate) },
    });
    cleanup.defer(() => fresh.stop());
    const form = { grant_type: "phone_otp", phone, password: await otpVerifier(fresh.origin).send(phone) };
    const grant = () => authApi(fresh.base, fastApi?.contract).token(form, racer);
    const holding = gate.hold('insert into "auth"."attempts"', "before");
    const response = grant();
    const held = await holding;
    await setTimeout(3_000);
    held.release();
    expect(await response).toMatchObject({ status: 503 });
    expect((await grant()).status).toBe(200);
  });

  test("a proof that is redeemed elsewhere meanwhile is refused", async () => {
    const { phone } = await newUser();
    const otp_verification_token = await otpVerifier(slow.origin).prove(phone);
    const form = { grant_type: "phone_otp_token", phone, otp_verification_token };
    const holding = gate.hold(scope, "before");
    const response = apis().here.token({ ...form, scope }, racer);
    const held = await holding;
    expect((await apis().there.token(form, racer)).status).toBe(200);
    held.release();
    expect(await response).toMatchObject(invalidGrant);
  });

  test.each(["before", "after"] as const)(
    "an identity deleted %s a refresh is stored: nothing of it is active",
    async (when) => {
      const { id } = await newUser();
      const first = await apis().there.newPair(id, racer);
      const { rotating } = decodeRefreshToken(first.refresh_token) ?? expect.fail("no refresh token");
      const holding = gate.hold(`x${hashPart(rotating).toString("hex")}`, when);
      const responding = apis().here.refresh(first.refresh_token, racer);
      const held = await holding;
      if (when === "after") {
        const replaced = () => store.read((query) => query("select from auth.replaced_tokens"));
        await waitFor(async () => expect(await replaced()).toHaveLength(1));
      }
      expect((await deleteIdentity(apis().there, id)).status).toBe(204);
      held.release();
      const response = await responding;
      expect(response.status).toBe(when === "after" ? 200 : 400);
      for (const { access_token } of [first, ...issued([response])]) {
        expect(await apis().here.introspect(access_token)).toEqual({ active: false });
      }
    },
  );

  test("a client that another process no longer lists is refused, in flight too, and its tokens are dead until it is listed again", async () => {
    const { id } = await newUser();
    const pair = await apis().here.newPair(id, racer);
    const other = await apis().here.newPair(id, mobileApp);
    const holding = gate.hold(scope, "before");
    const response = apis().here.token({ grant_type: "auth", auth_id: id, scope }, racer);
    const held = await holding;
    const without = await startAuthServer("PostgreSQL", { env: { ...store.env, ...withClients() } });
    held.release();
    expect(await response).toMatchObject(invalidGrant);
    for (const api of Object.values(apis())) {
      expect(await api.introspect(pair.access_token)).toEqual({ active: false });
      expect(await api.introspect(other.access_token)).toMatchObject({ active: true });
      expect((await api.refresh(pair.refresh_token, racer)).status).toBe(400);
      expect((await api.token({ grant_type: "auth", auth_id: id }, racer)).status).toBe(400);
      // Its credentials may be cached for a moment; meanwhile they get no tokens.
      const refused = { status: 400, body: { error: "invalid_client" } };
      await waitFor(async () => expect(await api.refresh(pair.refresh_token, racer)).toMatchObject(refused));
    }
    await without.stop();

    const again = await startAuthServer("PostgreSQL", { env: { ...store.env, ...clients } });
    expect(await apis().here.introspect(pair.access_token)).toMatchObject({ active: true });
    // That the client is unknown may be cached for a moment, too, by each process.
    for (const api of Object.values(apis())) {
      const grant = () => api.token({ grant_type: "auth", auth_id: id }, racer);
      await waitFor(async () => expect((await grant()).status).toBe(200));
    }
    expect((await apis().here.refresh(pair.refresh_token, racer)).status).toBe(200);
    const { access_token } = await apis().here.newPair(id, racer);
    expect(await apis().there.introspect(access_token)).toMatchObject({ active: true });
    await again.stop();
  });

  test("a locked identity delays no grant, not even its own", async () => {
    const grant = (id: string) => apis().there.token({ grant_type: "auth", auth_id: id }, racer);
    const users = await Promise.all(Array.from({ length: 20 }, async () => (await newUser()).id));
    await store.read(async (query) => {
      await query("begin");
      await query(`select from auth.identities where id = '${users[0]}' for update`);
      await query("select from auth.clients for update");
      const responses = await Promise.all([...users, "nobody"].map(grant));
      expect(issued(responses)).toHaveLength(users.length);
      expect(responses.at(-1)).toMatchObject(invalidGrant);
      await query("rollback");
    });
  });
});
