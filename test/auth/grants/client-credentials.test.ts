/** The grant client_credentials: a client for itself or an organization, its endings, and that no user is taken for it. */
import { randomUUID } from "node:crypto";
import { decodeJwt } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic, internal, mobileApp, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { spawnAuthServer, startAuthServer } from "../../support/auth-server.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { type Introspector, introspectors } from "../../support/introspectors.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const grantTypes = ["client_credentials", "refresh_token"];
const partnerClient = {
  clientId: "partner",
  clientSecret: "partner-secret",
  grantTypes,
  scopes: ["orders", "sessions"],
};
const partnerOf = (...organizations: string[]) => ({ ...partnerClient, clientSettings: { organizations } });
const partner = basic("partner", "partner-secret");
const env = withClients(partnerOf("42", "43", "7"));

describe.each(deployments)("client_credentials on $name", (deployment) => {
  let fleet: AuthFleet;
  let askers: readonly Introspector[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fleet = await startFleet(deployment, { env });
    cleanup.defer(() => fleet.stop());
    askers = fleet.servers.flatMap((server) => introspectors(server));
    cleanup.defer(() => {
      for (const asker of askers) asker.close();
    });
  });

  const request = (api: AuthApi, organization?: string, as = partner) =>
    api.token({ grant_type: "client_credentials", ...(organization !== undefined && { organization }) }, as);
  async function pairFor(organization?: string): Promise<TokenPair> {
    const { status, text } = await request(fleet.next(), organization);
    expect(status, text).toBe(200);
    return JSON.parse(text);
  }
  /** Whether the token is active: over every protocol, at every process. */
  const activeEverywhere = async ({ access_token }: TokenPair) => [
    ...new Set(await Promise.all(askers.map(async (asker) => (await asker.ask(access_token)).active))),
  ];
  const end = (id: string) =>
    fleet.next().call("endOrganizationAuthorizations", { as: internal, path: { id } });

  test("a client acts for an organization, or for itself, and never for a user", async () => {
    const [own, ofOrganization] = [await pairFor(), await pairFor("42")];
    expect(decodeJwt(own.access_token)).toMatchObject({
      sub: "partner",
      client_id: "partner",
      scope: "orders sessions",
    });
    expect(decodeJwt(own.access_token)).not.toHaveProperty("org_id");
    expect(decodeJwt(ofOrganization.access_token)).toMatchObject({ sub: "partner", org_id: "42" });
    for (const asker of askers) {
      const found = await asker.ask(ofOrganization.access_token);
      expect(found).toMatchObject({ active: true, sub: "partner" });
      expect(found["orgId"] ?? found["org_id"]).toBe("42");
      for (const member of ["userInfo", "username"]) expect(found[member] ?? "").toBe("");
    }
    const user = await fleet.next().newPair((await fleet.next().newIdentity()).id);
    expect(decodeJwt(user.access_token)).not.toHaveProperty("gty");
  });

  test("its token is nobody's at the operations about oneself", async () => {
    for (const { access_token } of [await pairFor(), await pairFor("42")]) {
      const as = `Bearer ${access_token}`;
      for (const operation of ["listOwnAuthorizations", "endAllOwnAuthorizations"])
        expect(await fleet.next().call(operation, { as })).toMatchObject({ status: 403 });
    }
  });

  test("an organization that is not the client's, and a client without the grant, are refused", async () => {
    const refusedWith = (error: string) => ({ status: 400, body: { error } });
    expect(await request(fleet.next(), "44")).toMatchObject(refusedWith("unauthorized_client"));
    const without = await request(fleet.next(), "42", mobileApp);
    expect(without).toMatchObject(refusedWith("unsupported_grant_type"));
  });

  test("a refresh keeps whom the client acts for, and a retry gets the same pair", async () => {
    const first = await pairFor("42");
    const [api, other] = [fleet.next(), fleet.next()];
    const next: TokenPair = JSON.parse((await api.refresh(first.refresh_token, partner)).text);
    expect(decodeJwt(next.access_token)).toMatchObject({ sub: "partner", org_id: "42" });
    const again: TokenPair = JSON.parse((await other.refresh(first.refresh_token, partner)).text);
    expect(again.access_token).toBe(next.access_token);
    const third: TokenPair = JSON.parse((await other.refresh(next.refresh_token, partner)).text);
    expect(decodeJwt(third.access_token)).toMatchObject({ sub: "partner", org_id: "42" });
  });

  test("ending an organization ends all of its tokens everywhere, and nobody else's; later ones live", async () => {
    await fleet.next().call("deleteIdentity", { as: internal, path: { id: "7" } });
    await fleet.next().newIdentity({ id: "7" });
    const user = await fleet.next().newPair("7");
    const [own, other] = [await pairFor(), await pairFor("43")];
    const ended = await Promise.all(Array.from({ length: 8 }, () => pairFor("7")));
    const refreshed = await fleet.next().refresh(ended[0]?.refresh_token ?? "", partner);
    ended.push(JSON.parse(refreshed.text));
    expect((await end("7")).status).toBe(204);
    for (const pair of ended) {
      expect(await activeEverywhere(pair)).toEqual([false]);
      const answer = await fleet.next().refresh(pair.refresh_token, partner);
      expect(answer).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
    }
    for (const pair of [own, other, user]) expect(await activeEverywhere(pair)).toEqual([true]);
    const later = await pairFor("7");
    expect(await activeEverywhere(later)).toEqual([true]);
    expect((await end("7")).status).toBe(204);
    expect(await activeEverywhere(later)).toEqual([false]);
    const reasons = () =>
      fleet
        .events("partner")
        .filter(({ data }) => data["reason"] === "REVOCATION_REASON_ORGANIZATION")
        .map(({ data }) => data["caller"]);
    await expect.poll(reasons, { timeout: 20_000 }).toEqual(Array.from({ length: 9 }, () => "internal"));
    // An identity's ending is not that of an organization with the same id.
    const last = await pairFor("7");
    await fleet.next().call("deleteIdentity", { as: internal, path: { id: "7" } });
    expect(await activeEverywhere(user)).toEqual([false]);
    expect(await activeEverywhere(last)).toEqual([true]);
  });

  test("of grants while an organization ends, none lives whose response came before it", async () => {
    const granted: TokenPair[] = [];
    const granting = Array.from({ length: 20 }, async () => granted.push(await pairFor("43")));
    await Promise.race(granting);
    const ending = end("43");
    const before = [...granted];
    await Promise.all([ending, ...granting]);
    for (const pair of before) expect(await activeEverywhere(pair)).toEqual([false]);
    expect((await end("43")).status).toBe(204);
    for (const pair of granted) expect(await activeEverywhere(pair)).toEqual([false]);
  });

  test("no identity can have the id of a client with the grant; one of another client's can be", async () => {
    for (const id of ["partner", "partner"])
      expect(
        await fleet.next().call("createIdentity", { as: internal, json: { id, phone: "+12025550188" } }),
      ).toMatchObject({ status: 409, body: { code: "identity_id_taken" } });
    // As it was before: its tokens are a user's.
    await fleet.next().newIdentity({ id: "backend" });
    const pair = await fleet.next().newPair("backend");
    expect(await fleet.next().introspect(pair.access_token)).toMatchObject({
      sub: "backend",
      userInfo: { userId: "backend" },
    });
  });
});

describe.each(backends)("a list on %s", (backend) => {
  test("that no longer has the organization, or the grant, lets nothing be refreshed until it has", async () => {
    const store = await createAuthStore(backend);
    const refusal = { status: 400 };
    let token = "";
    let itself = "";
    async function withList(client: object, act: (api: AuthApi) => Promise<void>): Promise<void> {
      const fleet = await startFleet({ name: "", backend, servers: 1 }, { store, env: withClients(client) });
      await act(fleet.next());
      await fleet.stop();
    }
    await withList(partnerOf("42"), async (api) => {
      const form = { grant_type: "client_credentials", organization: "42" };
      token = JSON.parse((await api.token(form, partner)).text).refresh_token;
      itself = JSON.parse((await api.token({ grant_type: form.grant_type }, partner)).text).refresh_token;
    });
    await withList(partnerOf("43"), async (api) => {
      expect(await api.refresh(token, partner)).toMatchObject(refusal);
    });
    const without = { ...partnerClient, grantTypes: ["refresh_token"] };
    await withList(without, async (api) => {
      for (const one of [token, itself]) expect(await api.refresh(one, partner)).toMatchObject(refusal);
    });
    await withList(partnerOf("42"), async (api) => {
      for (const one of [token, itself]) expect((await api.refresh(one, partner)).status).toBe(200);
    });
    await store.drop();
  });
});

test.runIf(backends.includes("PostgreSQL"))(
  "a start with the grant for a client whose id an identity has ends with 78, and says whose",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    const clientId = `partner-${randomUUID()}`;
    const before = await startAuthServer("PostgreSQL", { env: store.env });
    await authApi(before.base).newIdentity({ id: clientId });
    const start = spawnAuthServer("PostgreSQL", {
      env: { ...store.env, ...withClients({ ...partnerClient, clientId }) },
    });
    const { message } = await start.then(
      () => expect.fail("it started"),
      (error: Error) => error,
    );
    expect(message).toContain("exited with 78");
    expect(message).toContain(`for the client ${clientId}`);
    await before.stop();
    await store.drop();
  },
);
