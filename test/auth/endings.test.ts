/**
 * Ending very many authorizations: taking a client off the list, changing a password. It is as quick as ending one, and
 * nobody else notices.
 */
import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { beforeAll, describe, expect, test, vi } from "vitest";
import { authApi, basic, internal, mobileApp, newPhone } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../support/auth-store.ts";
import { backends } from "../support/servers.ts";
import { stopwatch } from "../support/stopwatch.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const former = basic("former", "former-secret");
const formerClient = { clientId: "former", clientSecret: "former-secret", grantTypes: ["auth"] };

/** Milliseconds that the slowest request of somebody else may take, on a machine that does other things. */
const noticeableMs = 2_000;

/** Calls until the work is done. @returns milliseconds of the slowest call, and of the work */
async function meanwhile<T>(work: Promise<T>, call: () => Promise<unknown>) {
  const clock = stopwatch();
  let isDone = false;
  let slowest = 0;
  let workMs = 0;
  const done = work.finally(() => {
    isDone = true;
    workMs = clock();
  });
  while (!isDone) {
    const before = clock();
    await call();
    slowest = Math.max(slowest, clock() - before);
    await setTimeout(10);
  }
  return { result: await done, slowest, workMs };
}

describe.runIf(backends.includes("PostgreSQL"))("ending many at once", () => {
  let store: AuthStore;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
  });
  const start = (env: Record<string, string>) =>
    startAuthServer("PostgreSQL", { env: { ...store.env, ...env } });

  /** Copies of the authorization that the identity has. */
  async function seed(identityId: string, count: number): Promise<void> {
    await store.read(async (query) => {
      const columns = (
        await query(`select string_agg(quote_ident(column_name), ', ') as names from information_schema.columns
          where table_schema = 'auth' and table_name = 'authorizations' and column_name <> 'id'`)
      )[0]?.["names"];
      await query(`insert into auth.authorizations (id, ${columns})
        select gen_random_uuid(), ${columns} from auth.authorizations, generate_series(1, ${count})
        where identity_id = '${identityId}'`);
      await query("analyze auth.authorizations");
    });
  }

  test("a client with 300,000 authorizations is off the list at once, and a start is ready within seconds", async () => {
    const bystander = await start(withClients(formerClient));
    const api = authApi(bystander.base);
    const { id } = await api.newIdentity();
    const pair = await api.newPair(id, former);
    await seed(id, 300_000);
    const other = await api.newPair((await api.newIdentity()).id, mobileApp);
    const isActive = async (token: string) => (await api.introspect(token)).active;
    expect(await isActive(pair.access_token)).toBe(true);

    const {
      result: without,
      slowest,
      workMs,
    } = await meanwhile(start(withClients()), () => isActive(other.access_token));
    expect(workMs).toBeLessThan(10_000);
    expect(slowest).toBeLessThan(noticeableMs);
    expect(await isActive(pair.access_token)).toBe(false);
    const refused = { status: 400 };
    expect(await api.token({ grant_type: "auth", auth_id: id }, former)).toMatchObject(refused);
    expect(await isActive(other.access_token)).toBe(true);
    await without.stop();
    await bystander.stop();
  }, 120_000);

  test("a password changed for an identity with 150,000 ends them with the answer; their events follow", async () => {
    const server = await start(withClients());
    const api = authApi(server.base);
    const { id } = await api.newIdentity({ id: randomUUID(), phone: newPhone() });
    const pair = await api.newPair(id);
    await seed(id, 150_000);
    const other = await api.newPair((await api.newIdentity()).id);
    const change = api.call("setIdentityPassword", {
      as: internal,
      path: { id },
      json: { password: "correct horse battery staple" },
    });
    const { result, slowest, workMs } = await meanwhile(change, () => api.introspect(other.access_token));
    expect(result.status).toBe(204);
    expect(workMs).toBeLessThan(noticeableMs);
    expect(slowest).toBeLessThan(noticeableMs);
    expect(await api.introspect(pair.access_token)).toEqual({ active: false });
    // What is granted now lives, while the others are swept.
    const next = await api.newPair(id);
    const isSwept = async () => {
      const unswept = await store.read((query) =>
        query(`select 1 from auth.identity_endings where identity_id = '${id}' and swept_at is null`),
      );
      return unswept.length === 0;
    };
    // Until the last one is marked.
    const sweeping = vi.waitFor(async () => expect(await isSwept()).toBe(true), {
      timeout: 150_000,
      interval: 200,
    });
    const swept = await meanwhile(sweeping, () => api.introspect(next.access_token));
    expect(swept.slowest).toBeLessThan(noticeableMs);
    const marked = await store.read((query) =>
      query(`select count(*)::int as n from auth.authorizations
        where identity_id = '${id}' and revocation_reason = 'PASSWORD_CHANGED'`),
    );
    expect(marked).toEqual([{ n: 150_001 }]);
    expect((await api.introspect(next.access_token)).active).toBe(true);
    await server.stop();
  }, 240_000);

  test("an identity that is made anew under the same id inherits nothing, and keeps what it is given", async () => {
    const server = await start(withClients());
    const api = authApi(server.base);
    const { id } = await api.newIdentity();
    const former = await api.newPair(id);
    expect((await api.call("deleteIdentity", { as: internal, path: { id } })).status).toBe(204);
    await api.newIdentity({ id });
    const pair = await api.newPair(id);
    // Before and after the sweep, which comes within a second or two.
    for (let turn = 0; turn < 2; turn += 1) {
      expect(await api.introspect(former.access_token)).toEqual({ active: false });
      expect((await api.refresh(former.refresh_token)).status).toBe(400);
      expect((await api.introspect(pair.access_token)).active).toBe(true);
      await waitFor(async () => {
        const swept = await store.read((query) =>
          query(`select 1 from auth.authorizations where identity_id = '${id}' and revoked_at is not null`),
        );
        expect(swept).toHaveLength(1);
      });
    }
    await server.stop();
  });
});
