/**
 * Lists of clients that meet: the one with the higher revision holds, whichever process starts last. And two secrets of
 * one client, while one replaces the other.
 */
import { describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic, internal, type TokenPair } from "../../support/auth-api.ts";
import { type AuthServer, spawnAuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";

const secretOf = (id: string) => `${id}-secret-of-16-characters`;
const client = (clientId: string, clientSecret: unknown = secretOf(clientId)) => ({
  clientId,
  clientSecret,
  grantTypes: ["auth", "refresh_token"],
});
const old = [client("first")];
const newer = [client("first"), client("second")];

function listing(list: readonly object[], revision?: number): Record<string, string> {
  return {
    OAUTH_SERVER_CLIENTS: JSON.stringify(list),
    ...(revision !== undefined && { OAUTH_SERVER_CLIENTS_REVISION: String(revision) }),
  };
}

/** Runs a server with a list for as long as the work takes. */
async function withList<T>(
  store: AuthStore,
  env: Record<string, string>,
  work: (api: AuthApi, server: AuthServer) => Promise<T>,
  backend: (typeof backends)[number],
): Promise<T> {
  const server = await startAuthServer(backend, { env: { ...store.env, ...env } });
  try {
    return await work(authApi(server.base), server);
  } finally {
    await server.stop();
  }
}

describe.each(backends)("lists of clients on %s", (backend) => {
  test("a lower revision changes nothing and warns; a higher one holds, also one that goes back", async () => {
    const store = await createAuthStore(backend);
    const run = <T>(env: Record<string, string>, work: (api: AuthApi, server: AuthServer) => Promise<T>) =>
      withList(store, env, work, backend);
    const second = basic("second", secretOf("second"));
    const pair = await run(listing(newer, 2), async (api) =>
      api.newPair((await api.newIdentity()).id, second),
    );
    const isActive = async (api: AuthApi) => (await api.introspect(pair.access_token)).active;
    for (const older of [listing(old, 1), listing(old)]) {
      await run(older, async (api, server) => {
        expect(await isActive(api)).toBe(true);
        expect((await api.refresh(pair.refresh_token, second)).status).toBe(200);
        expect(server.logs()).toContain("is not taken: revision 2 is in use");
      });
    }
    // Taken off the list, its tokens are inactive at once; listed again, they are as they were.
    await run(listing(old, 3), async (api) => expect(await isActive(api)).toBe(false));
    await run(listing(newer, 4), async (api, server) => {
      expect(await isActive(api)).toBe(true);
      expect(server.logs()).not.toContain("OAUTH_SERVER_CLIENTS");
    });
    await run(listing(newer, 4), async (api) => expect(await isActive(api)).toBe(true));
    await store.drop();
  });

  test("what is revoked while its client is not listed stays so when it is listed again", async () => {
    const store = await createAuthStore(backend);
    const second = basic("second", secretOf("second"));
    const [ended, oneToken, untouched] = await withList(
      store,
      listing(newer),
      async (api) => {
        const { id } = await api.newIdentity();
        return [await api.newPair(id, second), await api.newPair(id, second), await api.newPair(id, second)];
      },
      backend,
    );
    await withList(
      store,
      listing(old),
      async (api) => {
        for (const token of [ended.refresh_token, oneToken.access_token]) {
          const revoked = await api.call("revokeToken", { as: internal, form: { token } });
          expect(revoked.status).toBe(200);
        }
      },
      backend,
    );
    await withList(
      store,
      listing(newer),
      async (api) => {
        for (const { access_token } of [ended, oneToken]) {
          expect(await api.introspect(access_token)).toEqual({ active: false });
        }
        expect((await api.refresh(ended.refresh_token, second)).status).toBe(400);
        expect((await api.introspect(untouched.access_token)).active).toBe(true);
      },
      backend,
    );
    await store.drop();
  });

  test("a client that is listed again after a week finds no authorization, though no janitor came by", async () => {
    const store = await createAuthStore(backend);
    const second = basic("second", secretOf("second"));
    const run = <T>(list: readonly object[], work: (api: AuthApi) => Promise<T>) =>
      withList(store, listing(list), work, backend);
    const { id, pair } = await run(newer, async (api) => {
      const identity = await api.newIdentity();
      return { id: identity.id, pair: await api.newPair(identity.id, second) };
    });
    const listedAgainAfter = async (days: number, isActive: boolean) => {
      await run(old, async () => undefined);
      await store.read((query) =>
        query(
          `update auth.clients set disabled_at = now() - interval '${days} days' where client_id = 'second'`,
        ),
      );
      await run(newer, async (api) => {
        expect((await api.introspect(pair.access_token)).active).toBe(isActive);
        expect((await api.introspect((await api.newPair(id, second)).access_token)).active).toBe(true);
      });
    };
    await listedAgainAfter(6, true);
    await listedAgainAfter(8, false);
    await store.drop();
  });

  test("without revisions the last start wins, with a warning where the lists differ", async () => {
    const store = await createAuthStore(backend);
    const warning = "differs from the list in use, and replaces it";
    for (const [list, differs] of [
      [newer, false],
      [newer, false],
      [old, true],
    ] as const) {
      await withList(
        store,
        listing(list),
        async (api, server) => {
          expect(server.logs().includes(warning)).toBe(differs);
          const as = basic("second", secretOf("second"));
          const { status } = await api.token({ grant_type: "auth", auth_id: "nobody" }, as);
          expect(status).toBe(400);
        },
        backend,
      );
    }
    await store.drop();
  });

  test("either of two secrets is right, and the one that is taken off the list is wrong", async () => {
    const store = await createAuthStore(backend);
    const [before, after] = ["the-secret-of-before", "the-secret-of-after"];
    const grant = (api: AuthApi, id: string, secret: string) =>
      api.token({ grant_type: "auth", auth_id: id }, basic("first", secret));
    const lists = [
      { secrets: before, right: [before], wrong: [after] },
      { secrets: [before, after], right: [before, after, before], wrong: ["neither"] },
      { secrets: after, right: [after], wrong: [before] },
    ];
    const pairs: TokenPair[] = [];
    for (const { secrets, right, wrong } of lists) {
      await withList(
        store,
        listing([client("first", secrets)]),
        async (api) => {
          const { id } = await api.newIdentity();
          for (const secret of right) {
            const { status, text, body } = await grant(api, id, secret);
            expect(status, text).toBe(200);
            pairs.push(body as TokenPair);
          }
          for (const secret of wrong) {
            const refused = { status: 400, body: { error: "invalid_client" } };
            expect(await grant(api, id, secret)).toMatchObject(refused);
          }
          for (const pair of pairs) expect((await api.introspect(pair.access_token)).active).toBe(true);
        },
        backend,
      );
    }
    await store.drop();
  });
});

test.runIf(backends.includes("PostgreSQL"))(
  "a list of the same revision and another content does not start, and says what to do",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    await withList(store, listing(newer, 7), async () => undefined, "PostgreSQL");
    const changedSecret = [client("first", "another-secret-of-16"), client("second")];
    for (const other of [old, changedSecret]) {
      const start = spawnAuthServer("PostgreSQL", { env: { ...store.env, ...listing(other, 7) } });
      const { message } = await start.then(
        () => expect.fail("it started"),
        (error: Error) => error,
      );
      expect(message).toContain("exited with 78");
      expect(message).toContain("OAUTH_SERVER_CLIENTS_REVISION is that of the list in use");
      expect(message).toContain("Example: OAUTH_SERVER_CLIENTS_REVISION=8");
      expect(message).not.toContain("another-secret");
    }
    await store.drop();
  },
);
