/** Whose is what: devices, history and notifications of others are out of reach, whatever good token one has. */
import { createHash } from "node:crypto";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { components } from "../../../gen/openapi/push-orchestration.ts";
import { basic } from "../../support/auth-api.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Api, apiOf, type Operator, operatorOf, someone, until } from "./operator.ts";
import { createWorld, type World } from "./world.ts";

type HistoryPage = components["schemas"]["HistoryPage"];

const tomorrow = () => new Date(Date.now() + 86_400_000).toISOString();

describe.each(backends)("on %s", (backend) => {
  let world: World;
  let server: PushProcess;
  let api: Api;
  let operator: Operator;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    world = await createWorld(backend);
    cleanup.defer(() => world.end());
    server = await world.start();
    api = apiOf(server);
    operator = await operatorOf(server);
  });
  beforeEach(() => world.fcm.ledger.clear());

  /** Messages that the token got. */
  const received = (token: string) => world.fcm.ledger.token(token)?.count ?? 0;

  async function newUser() {
    const id = someone();
    const as = `Bearer ${await server.userToken(id)}`;
    async function done(operation: string, json?: object): Promise<void> {
      const { status, text } = await api.call(operation, { as, ...(json && { json }) });
      expect(status, text).toBe(204);
    }
    async function seen<T>(operation: string, query = ""): Promise<T> {
      const { status, text } = await api.call(operation, { as, query });
      expect(status, text).toBe(200);
      const body: T = JSON.parse(text);
      return body;
    }
    return {
      id,
      as,
      save: (token: string) => done("savePushToken", { token, expiration: tomorrow() }),
      remove: (token?: string) =>
        done("deletePushToken", token === undefined ? undefined : { token, expiration: tomorrow() }),
      history: (query?: string) => seen<HistoryPage>("getNotificationsHistory", query),
      isAllViewed: async () => (await seen<{ viewed: boolean }>("getNotificationsSummary")).viewed,
    };
  }

  /** Sends to everybody at UTC, and waits until all have it. */
  async function send(title: string): Promise<string> {
    const id = await operator.send({ title, utcOffsets: [0] });
    const { sent, planned } = await operator.ended(id);
    expect(sent).toBe(planned);
    return id;
  }

  it("nobody removes another's device", async () => {
    const [owner, other] = [await newUser(), await newUser()];
    const token = `mine-${owner.id}`;
    await owner.save(token);
    await other.save(`theirs-${other.id}`);
    await other.remove(token);
    await other.remove();
    await send("still there");
    expect([received(token), received(`theirs-${other.id}`)]).toEqual([1, 0]);
    await owner.remove(token);
    await send("gone");
    expect(received(token)).toBe(1);
  });

  it("nobody sees or marks another's history", async () => {
    const [reader, other, stranger] = [await newUser(), await newUser(), await newUser()];
    await reader.save(`d-${reader.id}`);
    await other.save(`d-${other.id}`);
    const id = await send("to both");
    const entries = async (user: typeof reader) =>
      (await user.history()).content.map((entry) => [entry.id, entry.userId, entry.viewed]);
    expect(await entries(other)).toEqual([[id, other.id, false]]);
    expect((await other.history("?markViewed=true")).content).toHaveLength(1);
    expect(await entries(other)).toEqual([[id, other.id, true]]);
    expect(await entries(reader)).toEqual([[id, reader.id, false]]);
    expect([await other.isAllViewed(), await reader.isAllViewed()]).toEqual([true, false]);
    // Nothing that a caller may send names another user.
    const asked = await api.call("getNotificationsHistory", {
      as: stranger.as,
      query: `?userId=${reader.id}`,
      headers: { "x-user-id": reader.id },
    });
    expect(Object(asked.body).content ?? []).toEqual([]);
    expect(await stranger.isAllViewed()).toBe(true);
  });

  it("each application's tokens are good for its own operations only", async () => {
    const user = await newUser();
    const id = await send("to nobody");
    const path = { id };
    const device = { token: `d-${user.id}`, expiration: tomorrow() };
    const ofUsers: [string, object][] = [
      ["savePushToken", { json: device }],
      ["deletePushToken", { json: device }],
      ["getNotificationsHistory", {}],
      ["getNotificationsSummary", {}],
    ];
    const ofBackoffice: [string, object][] = [
      ["sendPushNotification", { json: { title: "t", message: "m", utcOffsets: [0] } }],
      ["listNotifications", {}],
      ["getNotification", { path }],
      ["pauseNotification", { path }],
      ["resumeNotification", { path }],
      ["cancelNotification", { path }],
      ["recallNotification", { path }],
      ["listDeadLetters", {}],
      ["replayDeadLetter", { path: { id: "1" } }],
      ["replayAllDeadLetters", {}],
      ["listFailures", { path }],
      ["listProviders", {}],
      ["resumeProvider", { path: { provider: "outbox" } }],
      ["confirmRemovals", { path: { provider: "outbox" } }],
      ["discardRemovals", { path: { provider: "outbox" } }],
    ];
    const statuses = async (calls: typeof ofUsers, headers: object) =>
      Promise.all(
        calls.map(async ([name, options]) => (await api.call(name, { ...options, ...headers })).status),
      );
    const all = [...ofUsers, ...ofBackoffice];
    expect(await statuses(ofUsers, { as: operator.as })).toEqual(ofUsers.map(() => 403));
    expect(await statuses(ofBackoffice, { as: user.as })).toEqual(ofBackoffice.map(() => 403));
    expect(await statuses(all, {})).toEqual(all.map(() => 401));
    expect(await statuses(all, { as: `${user.as}x` })).toEqual(all.map(() => 401));
    // Credentials of the auth service are none here.
    expect(await statuses(all, { as: basic("internal", "internal-dev-secret") })).toEqual(all.map(() => 401));
    expect((await operator.list()).content[0]?.id).toBe(id);
  });

  it("a revoked token is 401 at once, and so is a deleted identity's", async () => {
    const [revoked, deleted] = [await newUser(), await newUser()];
    const look = async ({ as }: typeof revoked) => (await api.call("getNotificationsHistory", { as })).status;
    expect([await look(revoked), await look(deleted)]).toEqual([200, 200]);
    const answer = await fetch(`${server.authBase}/oauth2/v1/revoke`, {
      method: "POST",
      headers: { authorization: basic("backend", "backend-dev-secret") },
      body: new URLSearchParams({ token: revoked.as.slice("Bearer ".length) }),
    });
    expect(answer.status).toBe(200);
    expect(await look(revoked)).toBe(401);
    await server.deleteIdentity(deleted.id);
    expect(await look(deleted)).toBe(401);
  });

  it("a deleted identity's devices get nothing more, and a new one of the same id finds no history", async () => {
    const user = await newUser();
    await user.save(`d-${user.id}`);
    await send("before");
    expect(received(`d-${user.id}`)).toBe(1);
    await server.deleteIdentity(user.id);
    // The event takes its way; a device that is forgotten when it has been planned for is dropped.
    await until("its devices are forgotten", async () => {
      world.fcm.ledger.clear();
      await operator.ended(await operator.send({ utcOffsets: [0] }));
      return received(`d-${user.id}`) === 0;
    });
    const again = `Bearer ${await server.userToken(user.id)}`;
    const { body } = await api.call("getNotificationsHistory", { as: again });
    expect(Object(body)).toMatchObject({ content: [], totalElements: 0 });
  });

  it("a device whose authorization has ended elsewhere gets nothing more, and the user's others do", async () => {
    const asApp = basic("backend", "backend-dev-secret");
    async function auth<T>(path: string, fields: Record<string, string>): Promise<T> {
      const answer = await fetch(`${server.authBase}/oauth2/v1/${path}`, {
        method: "POST",
        headers: { authorization: asApp },
        body: new URLSearchParams(fields),
      });
      expect(answer.status).toBe(200);
      return JSON.parse((await answer.text()) || "{}");
    }
    type Pair = { access_token: string; refresh_token: string };
    const pairOf = (fields: Record<string, string>) => auth<Pair>("tokens", fields);
    const refreshed = ({ refresh_token }: Pair) => pairOf({ grant_type: "refresh_token", refresh_token });
    const endings: Record<string, (pair: Pair, userId: string) => Promise<unknown>> = {
      revoked: ({ refresh_token: token }) => auth("revoke", { token }),
      async reused(pair) {
        await refreshed(await refreshed(pair));
        await expect(refreshed(pair)).rejects.toThrow();
      },
      "with its password changed": (_, userId) =>
        fetch(`${server.authBase}/v1/identities/${userId}/password`, {
          method: "PUT",
          headers: {
            authorization: basic("internal", "internal-dev-secret"),
            "content-type": "application/json",
          },
          body: JSON.stringify({ password: "another horse battery" }),
        }),
    };
    const users = await Promise.all(
      Object.entries(endings).map(async ([name, end]) => {
        const { id } = await newUser();
        const signIn = () => pairOf({ grant_type: "auth", auth_id: id });
        const [ended, other] = [await signIn(), await signIn()];
        const save = async ({ access_token }: Pair, token: string) => {
          const json = { token, expiration: tomorrow() };
          expect((await api.call("savePushToken", { as: `Bearer ${access_token}`, json })).status).toBe(204);
        };
        await save(ended, `ended-${id}`);
        // It was registered with the one and is renewed with the other, after a refresh.
        await save(ended, `other-${id}`);
        await save(await refreshed(other), `other-${id}`);
        await end(ended, id);
        return { name, id };
      }),
    );
    await until("all of them have been learned of", async () => {
      world.fcm.ledger.clear();
      await operator.ended(await operator.send({ utcOffsets: [0] }));
      return users.every(({ id }) => received(`ended-${id}`) === 0);
    });
    expect(users.map(({ name, id }) => [name, received(`other-${id}`)])).toEqual([
      ["revoked", 1],
      ["reused", 1],
      ["with its password changed", 0],
    ]);
  });

  it("a device that changes hands is its new owner's alone", async () => {
    const [former, owner] = [await newUser(), await newUser()];
    const token = `shared-${createHash("sha256").update(former.id).digest("hex")}`;
    await former.save(token);
    const first = await send("to the former owner");
    await owner.save(token);
    const second = await send("to the new owner");
    const ids = async (user: typeof former) => (await user.history()).content.map(({ id }) => id);
    expect(await ids(former)).toEqual([first]);
    expect(await ids(owner)).toEqual([second]);
    // One message each, although both have registered it.
    expect(
      world.fcm.ledger.token(token)?.messages.map(({ collapseId, count }) => [collapseId, count]),
    ).toEqual([
      [first, 1],
      [second, 1],
    ]);
    // The former owner signs out on the device: that is too late to take it away.
    await former.remove(token);
    await former.remove();
    await send("still the new owner's");
    expect(received(token)).toBe(3);
    await owner.remove();
    await send("nobody's");
    expect(received(token)).toBe(3);
    // And back again: history stays with whoever it is of.
    await former.save(token);
    const last = await send("to the former owner again");
    expect(await ids(former)).toEqual([last, first]);
    expect(received(token)).toBe(4);
  });

  it("what was planned for a device's user is shown to no other, whenever the device comes to another", async () => {
    const [former, owner] = [await newUser(), await newUser()];
    const tokens = { renewed: "hands-1", taken: "hands-2", back: "hands-3", anew: "hands-4" };
    for (const token of Object.values(tokens)) await former.save(token);
    const failing = world.fcm.play({ tokenPrefix: "hands-", answer: "INTERNAL" });
    const id = await operator.send({ utcOffsets: [0], title: "for the former owner" });
    await until("all have failed once", () => failing.played >= 4);
    await former.save(tokens.renewed);
    await owner.save(tokens.taken);
    await owner.save(tokens.back);
    await former.save(tokens.back);
    await former.remove(tokens.anew);
    await owner.save(tokens.anew);
    failing.stop();
    expect(await operator.ended(id)).toMatchObject({ failed: 0, dropped: 3, remaining: 0 });
    expect(Object.values(tokens).map(received)).toEqual([1, 0, 0, 0]);
    expect((await owner.history()).content).toEqual([]);
    expect((await former.history()).content).toHaveLength(1);
  });

  it("a device that two users register at the same time is one user's, and gets one message", async () => {
    const users = await Promise.all(Array.from({ length: 5 }, newUser));
    const token = `wanted-${users[0]?.id}`;
    await Promise.all(Array.from({ length: 5 }, () => users.map(({ save }) => save(token))).flat());
    const id = await send("to one of them");
    expect(received(token)).toBe(1);
    const pages = await Promise.all(users.map(({ history }) => history()));
    expect(pages.flatMap(({ content }) => content).map((entry) => entry.id)).toEqual([id]);
  });
});
