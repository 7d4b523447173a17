/** A user's authorizations, as he and an operator see them and end them. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import type { components } from "../../../gen/openapi/auth.ts";
import {
  type Answer as AuthAnswer,
  type AuthApi,
  basic,
  internal,
  mobileApp,
} from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { introspectors } from "../../support/introspectors.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

type Page = components["schemas"]["AuthorizationsPage"];

const app = basic("sessions-app", "sessions-app-secret");
const brief = basic("brief-app", "brief-app-secret");
const clients = withClients(
  {
    clientId: "sessions-app",
    clientSecret: "sessions-app-secret",
    grantTypes: ["auth", "refresh_token"],
    scopes: ["profile", "sessions"],
  },
  {
    clientId: "brief-app",
    clientSecret: "brief-app-secret",
    grantTypes: ["auth"],
    tokenSettings: { refreshTokenSeconds: 1 },
  },
);

const bearer = ({ access_token }: { access_token: string }) => `Bearer ${access_token}`;
const sidOf = ({ access_token }: { access_token: string }): string =>
  JSON.parse(Buffer.from(access_token.split(".")[1] ?? "", "base64url").toString()).sid;

function pageIn({ status, text }: AuthAnswer): Page {
  expect(status, text).toBe(200);
  return JSON.parse(text);
}

describe.each(deployments)("the authorizations of a user: $name", (deployment) => {
  let fleet: AuthFleet;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fleet = await startFleet(deployment, { env: clients });
    cleanup.defer(() => fleet.stop());
    [api] = fleet.apis;
  });

  const list = async (id: string, query = "") =>
    pageIn(await fleet.next().call("listAuthorizations", { as: internal, path: { id }, query }));
  const listOwn = async (as: string, query = "") =>
    pageIn(await fleet.next().call("listOwnAuthorizations", { as, query }));
  async function someone(count = 1, as = app) {
    const { id } = await api.newIdentity();
    const pairs = [];
    for (let n = 0; n < count; n += 1) pairs.push(await fleet.next().newPair(id, as));
    // Two of one millisecond may be in either order.
    return { id, pairs: pairs.sort((one, other) => (sidOf(one) < sidOf(other) ? -1 : 1)) };
  }

  /** Asks every process, over every protocol, which of the tokens are active. */
  async function activeEverywhere(pairs: readonly { access_token: string }[]): Promise<boolean[][]> {
    const askers = fleet.servers.flatMap((server) => introspectors(server));
    const found = await Promise.all(
      askers.map(async ({ ask }) =>
        Promise.all(pairs.map(async ({ access_token }) => (await ask(access_token)).active)),
      ),
    );
    for (const asker of askers) asker.close();
    return found;
  }
  const everywhere = (...active: boolean[]) => fleet.servers.flatMap(() => Array(6).fill(active));

  test("each is shown with all that is known of it, and what the client has said of it", async () => {
    const { id } = await api.newIdentity();
    const said = { device_name: "Ada’s phone 📱", metadata: '{"app_version":"4.2.0","n":[1,null]}' };
    const form = { grant_type: "auth", auth_id: id, scope: "sessions", ...said };
    const pair = JSON.parse((await api.token(form, app)).text);
    const other = await api.newPair(id, mobileApp);
    const own = await listOwn(bearer(pair));
    own.content.sort((one, later) => (one.clientId < later.clientId ? -1 : 1));
    expect(own).toEqual({
      content: [
        {
          id: sidOf(other),
          clientId: "backend",
          grantType: "auth",
          scopes: ["profile", "orders"],
          state: "ACTIVE",
          registeredAt: expect.any(String),
          refreshedAt: expect.any(String),
          expiresAt: expect.any(String),
          current: false,
        },
        {
          id: sidOf(pair),
          clientId: "sessions-app",
          grantType: "auth",
          scopes: ["sessions"],
          state: "ACTIVE",
          registeredAt: expect.any(String),
          refreshedAt: expect.any(String),
          expiresAt: expect.any(String),
          deviceName: said.device_name,
          metadata: JSON.parse(said.metadata),
          current: true,
        },
      ],
    });
    const content = own.content.map((one) => ({ ...one, current: false }));
    expect((await list(id)).content).toEqual(expect.arrayContaining(content));
    const [, before] = own.content;
    expect(before?.refreshedAt).toBe(before?.registeredAt);
    // Neither a refresh nor what it sends changes what was said.
    const again = { grant_type: "refresh_token", refresh_token: pair.refresh_token, device_name: "Eve" };
    const { status, text } = await fleet.next().token(again, app);
    expect(status).toBe(200);
    expect(text).not.toContain("Ada’s");
    const later = (await listOwn(bearer(JSON.parse(text)))).content;
    const after = later.find(({ current }) => current);
    expect(after).toMatchObject({ registeredAt: before?.registeredAt, deviceName: said.device_name });
    expect(Date.parse(after?.refreshedAt ?? "")).toBeGreaterThan(Date.parse(before?.refreshedAt ?? ""));
    expect(Date.parse(after?.expiresAt ?? "")).toBeGreaterThan(Date.parse(before?.expiresAt ?? ""));
  });

  test("pages by their keys show each once, the newest first, whatever ends meanwhile", async () => {
    const { id, pairs } = await someone(7);
    const newest = pairs.map(sidOf).reverse();
    const seen: string[] = [];
    let next: string | undefined;
    do {
      const page: Page = await list(id, `?size=2${next === undefined ? "" : `&after=${next}`}`);
      seen.push(...page.content.map((one) => one.id));
      next = page.next;
      // One that is on the page moves from one index to the other.
      const path = { id, authorizationId: seen.at(-1) ?? "" };
      expect((await api.call("endAuthorization", { as: internal, path })).status).toBe(204);
    } while (next !== undefined);
    expect(seen).toEqual(newest);
    const states = (await list(id, "?size=1000")).content.map(({ state }) => state);
    expect(states).toEqual([..."ARARARR"].map((one) => ({ A: "ACTIVE", R: "REVOKED" })[one]));
    const active = await list(id, "?active=true");
    expect(active.content.map((one) => one.id)).toEqual([newest[0], newest[2], newest[4]]);
    expect(active.next).toBeUndefined();
  });

  test("each state has its reason, before and after the janitor has marked it", async () => {
    const { id, pairs } = await someone(4);
    const [revoked, reused, ended, current] = pairs;
    if (!revoked || !reused || !ended || !current) throw new Error("there are four");
    await api.call("revokeToken", { as: app, form: { token: revoked.refresh_token } });
    const { text } = await api.refresh(reused.refresh_token, app);
    expect((await api.refresh(JSON.parse(text).refresh_token, app)).status).toBe(200);
    expect((await api.refresh(reused.refresh_token, app)).status).toBe(400);
    const path = { authorizationId: sidOf(ended) };
    // Whatever ends it later, it keeps its reason.
    for (const as of [bearer(current), bearer(current)])
      expect((await fleet.next().call("endOwnAuthorization", { as, path })).status).toBe(204);
    await api.call("endAuthorization", { as: internal, path: { ...path, id } });
    await api.newPair(id, brief);
    const reasons = async () => {
      const { content } = await list(id);
      const shop = content.filter(({ clientId }) => clientId === "sessions-app");
      const others = content.filter((one) => !shop.includes(one));
      return [...others, ...shop].map(({ state, reason }) => reason ?? state);
    };
    await expect.poll(reasons).toEqual(["EXPIRED", "ACTIVE", "USER", "REUSE", "CLIENT"]);
    await api.call("endAllAuthorizations", { as: internal, path: { id } });
    const wanted = ["OPERATOR", "OPERATOR", "USER", "REUSE", "CLIENT"];
    expect(await reasons()).toEqual(wanted);
    const json = { password: "correct horse battery staple" };
    await api.call("setIdentityPassword", { as: internal, path: { id }, json });
    expect(await reasons()).toEqual(wanted);
    const endings = () =>
      fleet.events(id).flatMap(({ type, data }) => {
        return type === "auth.authorization.revoked.v1" ? [`${data["reason"]} by ${data["caller"]}`] : [];
      });
    await expect
      .poll(() => endings().sort(), { timeout: 10_000 })
      .toEqual([
        "REVOCATION_REASON_CLIENT by sessions-app",
        "REVOCATION_REASON_OPERATOR by internal",
        "REVOCATION_REASON_OPERATOR by internal",
        "REVOCATION_REASON_REUSE by sessions-app",
        "REVOCATION_REASON_USER by sessions-app",
      ]);
    expect(await reasons()).toEqual(wanted);
  });

  test("once the end of one or all has its response, none is active: at each process, over each protocol", async () => {
    const { id, pairs } = await someone(6);
    const other = await someone();
    const [current, one, two] = pairs;
    if (!current || !one || !two) throw new Error("there are six");
    const tokens = [...pairs, ...other.pairs];
    const path = { id, authorizationId: sidOf(one) };
    expect((await fleet.next().call("endAuthorization", { as: internal, path })).status).toBe(204);
    expect(await activeEverywhere(tokens)).toEqual(everywhere(true, false, true, true, true, true, true));
    const own = { as: bearer(current), path: { authorizationId: sidOf(two) } };
    expect((await fleet.next().call("endOwnAuthorization", own)).status).toBe(204);
    expect(await activeEverywhere(tokens)).toEqual(everywhere(true, false, false, true, true, true, true));
    // Twice, as a kept one can be kept again.
    for (let turn = 0; turn < 2; turn += 1) {
      const except = { as: bearer(current), query: "?except=current" };
      expect((await fleet.next().call("endAllOwnAuthorizations", except)).status).toBe(204);
      expect(await activeEverywhere(tokens)).toEqual(
        everywhere(true, false, false, false, false, false, true),
      );
    }
    const refreshed = await fleet.next().refresh(current.refresh_token, app);
    expect(refreshed.status).toBe(200);
    const now = JSON.parse(refreshed.text);
    const later = await fleet.next().newPair(id, app);
    expect((await fleet.next().call("endAllOwnAuthorizations", { as: bearer(now) })).status).toBe(204);
    expect(await activeEverywhere([now, later, ...tokens])).toEqual(
      everywhere(...Array(8).fill(false), true),
    );
    expect((await api.refresh(now.refresh_token, app)).status).toBe(400);
    const again = await api.newPair(id, app);
    expect((await fleet.next().call("endAllAuthorizations", { as: internal, path: { id } })).status).toBe(
      204,
    );
    expect(await activeEverywhere([again, ...other.pairs])).toEqual(everywhere(false, true));
  });

  test("what is kept survives endings at the same moment, and nothing else does", async () => {
    const { id, pairs } = await someone(8);
    const [current] = pairs;
    if (!current) throw new Error("there are eight");
    const except = () =>
      fleet.next().call("endAllOwnAuthorizations", { as: bearer(current), query: "?except=current" });
    const sent = await Promise.all([except(), except(), except(), except()]);
    expect(sent.map(({ status }) => status)).toEqual([204, 204, 204, 204]);
    expect(await activeEverywhere(pairs)).toEqual(everywhere(true, ...Array(7).fill(false)));
    // An ending of all beside it: whichever comes first, it has ended.
    const all = fleet.next().call("endAllAuthorizations", { as: internal, path: { id } });
    await Promise.all([all, except()]);
    expect(await activeEverywhere(pairs)).toEqual(everywhere(...Array(8).fill(false)));
  });

  test("nobody sees or ends another's, nor without the scope, nor with a token that has ended", async () => {
    const [ada, eve] = [await someone(2), await someone()];
    const [first, second] = ada.pairs;
    const [pair] = eve.pairs;
    if (!first || !second || !pair) throw new Error("each has one");
    const foreign = { authorizationId: sidOf(first) };
    const as = bearer(pair);
    expect(await api.call("endOwnAuthorization", { as, path: foreign })).toMatchObject({ status: 404 });
    const path = { ...foreign, id: eve.id };
    expect(await api.call("endAuthorization", { as: internal, path })).toMatchObject({ status: 404 });
    const unknown = { authorizationId: randomUUID() };
    expect(await api.call("endOwnAuthorization", { as, path: unknown })).toMatchObject({ status: 404 });
    expect((await listOwn(as)).content.map(({ id }) => id)).toEqual([sidOf(pair)]);
    const without = bearer(await api.newPair(ada.id, mobileApp));
    const refused = await api.call("listOwnAuthorizations", { as: without });
    expect(refused).toMatchObject({ status: 403, body: { code: "forbidden" } });
    expect(refused.headers.get("www-authenticate")).toContain('error="insufficient_scope"');
    expect((await api.call("endAllOwnAuthorizations", { as: bearer(second) })).status).toBe(204);
    expect(await activeEverywhere([first, second, pair])).toEqual(everywhere(false, false, true));
    for (const none of [bearer(second), internal, app, "Bearer x"])
      expect(await api.call("listOwnAuthorizations", { as: none })).toMatchObject({ status: 401 });
    expect(await api.call("listAuthorizations", { as: bearer(pair), path: { id: eve.id } })).toMatchObject({
      status: 401,
    });
  });

  test("an app's tokens for others go without the scope, and it has one with it when it shows the list", async () => {
    const { pairs } = await someone();
    const [first] = pairs;
    if (!first) throw new Error("there is one");
    let pair = first;
    const refreshed = async (scope: Record<string, string>) => {
      const form = { grant_type: "refresh_token", refresh_token: pair.refresh_token, ...scope };
      const { status, text } = await fleet.next().token(form, app);
      expect(status, text).toBe(200);
      pair = JSON.parse(text);
      return (await api.call("listOwnAuthorizations", { as: bearer(pair) })).status;
    };
    expect(await refreshed({ scope: "profile" })).toBe(403);
    expect(await refreshed({ scope: "sessions" })).toBe(200);
    expect(await refreshed({ scope: "profile" })).toBe(403);
    expect(await refreshed({})).toBe(200);
  });

  test("what is just within the limits is taken", async () => {
    const { id } = await api.newIdentity();
    const members = Object.fromEntries(Array.from({ length: 16 }, (_, n) => [n, ""]));
    const room = 2_048 - JSON.stringify(members).length;
    const [device_name, metadata] = ["📱".repeat(64), JSON.stringify({ ...members, 15: "a".repeat(room) })];
    const { status } = await api.token({ grant_type: "auth", auth_id: id, device_name, metadata }, app);
    expect(status).toBe(200);
    expect((await list(id)).content).toMatchObject([
      { deviceName: device_name, metadata: JSON.parse(metadata) },
    ]);
  });

  const unusable: [string, Record<string, string>][] = [
    ["a name of 65 characters", { device_name: "a".repeat(65) }],
    ["a name of two lines", { device_name: "a\nb" }],
    ["a name with a line separator", { device_name: "a\u2028b" }],
    ["a name that turns the text around", { device_name: "a\u202eb" }],
    ["a name with an isolate", { device_name: "\u2066a" }],
    ["metadata that is no JSON", { metadata: "{" }],
    ["metadata that is a list", { metadata: "[]" }],
    ["metadata that is null", { metadata: "null" }],
    ["a NUL in metadata", { metadata: '{"a":"\\u0000"}' }],
    ["half of a surrogate pair", { metadata: '{"a":"\\ud800"}' }],
    ["a repeated member", { metadata: '{"a":1,"a":2}' }],
    ["a number that loses digits", { metadata: '{"a":12345678901234567890}' }],
    [
      "17 members",
      { metadata: JSON.stringify(Object.fromEntries(Array.from({ length: 17 }, (_, n) => [n, n]))) },
    ],
    ["metadata over 2 KiB", { metadata: JSON.stringify({ a: "é".repeat(1_100) }) }],
  ];
  test.each(unusable)("%s is invalid_request, and nothing is granted", async (_name, said) => {
    const { id } = await api.newIdentity();
    const answer = await api.token({ grant_type: "auth", auth_id: id, ...said }, app);
    expect(answer).toMatchObject({ status: 400, body: { error: "invalid_request" } });
    expect((await list(id)).content).toEqual([]);
  });

  test("an identity that is made anew sees nothing of the one before, which had the same id", async () => {
    const { id } = await someone(2);
    await api.call("deleteIdentity", { as: internal, path: { id } });
    expect(await api.call("listAuthorizations", { as: internal, path: { id } })).toMatchObject({
      status: 404,
    });
    expect(await api.call("endAllAuthorizations", { as: internal, path: { id } })).toMatchObject({
      status: 404,
    });
    await api.newIdentity({ id });
    // Those of its last minute could be the new one's, granted by a process whose clock is behind.
    const reasons = (await list(id)).content.map(({ reason }) => reason);
    expect(reasons).toEqual(["IDENTITY_DELETED", "IDENTITY_DELETED"]);
    if (deployment.backend === "PGlite") return;
    await fleet.store.read((query) =>
      query(`update auth.authorizations set created_at = created_at - interval '61 seconds'
        where identity_id = '${id}'`),
    );
    const pair = await api.newPair(id, app);
    expect((await list(id)).content.map((one) => one.id)).toEqual([sidOf(pair)]);
  });
});
