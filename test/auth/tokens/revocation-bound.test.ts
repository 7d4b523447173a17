/**
 * The revocation bound: once a revocation, a deletion or a reuse is answered, no process and no protocol says
 * active again, not for one millisecond. One process ends tokens, and another is asked in the same instant.
 */
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, basic, internal, mobileApp, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { type Introspector, overConnect, overHttp, overNativeGrpc } from "../../support/introspectors.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** A client whose replaced tokens have no grace, so that a second use is reuse at once. */
const strict = basic("strict", "strict-secret");
const clients = withClients({
  clientId: "strict",
  clientSecret: "strict-secret",
  grantTypes: ["auth", "refresh_token"],
  tokenSettings: { refreshGraceSeconds: 0 },
});

/** Tokens that are active, and what ends them. */
interface Case {
  readonly accessTokens: readonly string[];
  /** Resolves when the end has been answered, with its status. */
  end(api: AuthApi): Promise<number>;
}

type Ending = (api: AuthApi, identityId: string) => Promise<Case>;

async function revoke(api: AuthApi, token: string): Promise<number> {
  return (await api.call("revokeToken", { as: mobileApp, form: { token } })).status;
}

/** Each way to end a token, its answer's status, and how often it comes in a round of twenty. */
const endings: Record<string, { answer: number; share: number; prepare: Ending }> = {
  "access token revoked": {
    answer: 200,
    share: 7,
    async prepare(api, id) {
      const { access_token } = await api.newPair(id);
      return { accessTokens: [access_token], end: (there) => revoke(there, access_token) };
    },
  },
  "refresh token revoked": {
    answer: 200,
    share: 6,
    async prepare(api, id) {
      const { access_token, refresh_token } = await api.newPair(id);
      return { accessTokens: [access_token], end: (there) => revoke(there, refresh_token) };
    },
  },
  "identity deleted": {
    answer: 204,
    share: 3,
    async prepare(api) {
      const { id } = await api.newIdentity();
      const { access_token } = await api.newPair(id);
      const end = async (there: AuthApi) =>
        (await there.call("deleteIdentity", { as: internal, path: { id } })).status;
      return { accessTokens: [access_token], end };
    },
  },
  "password changed": {
    answer: 204,
    share: 1,
    async prepare(api, id) {
      const { access_token } = await api.newPair(id);
      const json = { password: "correct horse battery staple" };
      const end = async (there: AuthApi) =>
        (await there.call("setIdentityPassword", { as: internal, path: { id }, json })).status;
      return { accessTokens: [access_token], end };
    },
  },
  "password removed": {
    answer: 204,
    share: 1,
    async prepare(api, id) {
      const { access_token } = await api.newPair(id);
      const end = async (there: AuthApi) =>
        (await there.call("removeIdentityPassword", { as: internal, path: { id } })).status;
      return { accessTokens: [access_token], end };
    },
  },
  "refresh token reused": {
    answer: 400,
    share: 2,
    async prepare(api, id) {
      const first = await api.newPair(id, strict);
      const { body } = await api.refresh(first.refresh_token, strict);
      const second = body as TokenPair;
      // Once its successor has been presented, a replaced token is a copy.
      const third = (await api.refresh(second.refresh_token, strict)).body as TokenPair;
      return {
        accessTokens: [first, second, third].map(({ access_token }) => access_token),
        end: async (there) => (await there.refresh(first.refresh_token, strict)).status,
      };
    },
  },
};
const kinds = Object.entries(endings).flatMap(([name, { share }]) => Array<string>(share).fill(name));

/** Shifted by five: neighbours in a round differ. */
function kindOf(index: number): string {
  return kinds[(index * 7) % kinds.length] ?? "";
}

describe.each(deployments)("revocation: $name", (deployment) => {
  const times = deployment.servers > 1 ? 1000 : 100;
  let fleet: AuthFleet;
  /** For each server, the ways to ask it. */
  let askers: Introspector[][];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fleet = await startFleet(deployment, { env: clients });
    cleanup.defer(() => fleet.stop());
    askers = fleet.servers.map((server) => [overHttp(server), overNativeGrpc(server), overConnect(server)]);
    cleanup.defer(() => {
      for (const asker of askers.flat()) asker.close();
    });
  });

  /** The server that ends tokens, and ways to ask another one where there is one. */
  function sides(index: number): { here: AuthApi; there: readonly Introspector[] } {
    const here = fleet.apis[index % fleet.apis.length] ?? fleet.apis[0];
    const there = askers[(index + 1) % askers.length] ?? expect.fail("no other server");
    return { here, there };
  }

  test(`${times} times, asked at once over every protocol, an ended token is never active`, async () => {
    const wrong: string[] = [];
    const done: Record<string, number> = {};
    let next = 0;
    async function worker(): Promise<void> {
      const { id } = await fleet.next().newIdentity();
      for (let index = next++; index < times; index = next++) {
        const kind = kindOf(index);
        const { here, there } = sides(index);
        const { answer, prepare } = endings[kind] ?? expect.fail(kind);
        const { accessTokens, end } = await prepare(fleet.next(), id);
        const asked = accessTokens.flatMap((token) => there.map((asker) => ({ asker, token })));
        const before = await Promise.all(asked.map(({ asker, token }) => asker.ask(token)));
        expect(
          before.every(({ active }) => active),
          kind,
        ).toBe(true);

        const status = await end(here);
        const after = await Promise.all(asked.map(({ asker, token }) => asker.ask(token)));

        expect(status, kind).toBe(answer);
        for (const [at, { active }] of after.entries()) {
          if (active) wrong.push(`${kind}, over ${asked[at]?.asker.protocol}`);
        }
        done[kind] = (done[kind] ?? 0) + 1;
      }
    }
    await Promise.all(Array.from({ length: 6 }, worker));
    expect(wrong).toEqual([]);
    expect(Object.keys(done).sort()).toEqual(Object.keys(endings).sort());
  }, 600_000);

  test.each(Object.keys(endings))(
    "%s: of introspections in a tight loop elsewhere, none that began after the answer says active",
    async (kind) => {
      const { answer, prepare } = endings[kind] ?? expect.fail(kind);
      for (let round = 0; round < 5; round += 1) {
        const { id } = await fleet.next().newIdentity();
        const { here, there } = sides(round);
        const { accessTokens, end } = await prepare(fleet.next(), id);
        const asked: { began: number; ended: number; active: boolean }[] = [];
        const enough = Promise.withResolvers<void>();
        let isOver = false;
        const loop = async (asker: Introspector, token: string) => {
          for (let more = 3; more > 0; more -= isOver ? 1 : 0) {
            const began = performance.now();
            const { active } = await asker.ask(token);
            asked.push({ began, ended: performance.now(), active });
            if (asked.length >= 20) enough.resolve();
          }
        };
        const loops = accessTokens.flatMap((token) =>
          [...there, ...there].map((asker) => loop(asker, token)),
        );
        await enough.promise;
        expect(asked.every(({ active }) => active)).toBe(true);
        const status = await end(here);
        const answered = performance.now();
        isOver = true;
        await Promise.all(loops);

        expect(status).toBe(answer);
        // Whoever has been told inactive holds the others to it, too.
        const since = Math.min(answered, ...asked.flatMap(({ active, ended }) => (active ? [] : [ended])));
        const late = asked.filter(({ began }) => began >= since);
        expect(late.length).toBeGreaterThanOrEqual(3);
        expect(late.filter(({ active }) => active)).toEqual([]);
      }
    },
  );
});
