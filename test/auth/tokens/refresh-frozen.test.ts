/**
 * A pause of PostgreSQL that is longer than the grace window, in the middle of refreshes: nobody's retry is taken for
 * the reuse of a stolen token.
 */
import { setTimeout } from "node:timers/promises";
import { expect, test } from "vitest";
import { authApi, basic, lasting, type TokenPair } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { spawnAuthServer } from "../../support/auth-server.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { openDatabaseWire } from "../../support/database-wire.ts";
import { freezeBackends } from "../../support/postgresql/frozen-backends.ts";
import { backends } from "../../support/servers.ts";
import { waitFor } from "../../support/wait-for.ts";

const brief = basic("brief", "brief-secret");
const graceSeconds = 2;
const freezeSeconds = 9;
const clients = withClients({
  clientId: "brief",
  clientSecret: "brief-secret",
  grantTypes: ["auth", "refresh_token"],
  tokenSettings: { refreshGraceSeconds: graceSeconds },
});

test.runIf(backends.includes("PostgreSQL"))(
  "backends that freeze under refresh load end no session",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    const server = await spawnAuthServer("PostgreSQL", { env: { ...store.env, ...clients } });
    const api = authApi(server.base);
    const { id } = await api.newIdentity();
    const stopping = new AbortController();
    let refreshed = 0;
    const outcomes = new Map<number, number>();

    /** Refreshes as a client does: what was not answered is tried again with the same token. */
    async function session(): Promise<void> {
      let pair = await api.newPair(id, brief);
      while (!stopping.signal.aborted) {
        const { status, body } = await api.refresh(pair.refresh_token, brief);
        outcomes.set(status, (outcomes.get(status) ?? 0) + 1);
        if (status === 400) return;
        if (status === 200) {
          refreshed += 1;
          pair = body as TokenPair;
        } else await setTimeout(200);
      }
    }
    const sessions = Array.from({ length: 20 }, session);
    const refreshes = (count: number) => waitFor(() => expect(refreshed).toBeGreaterThan(count));
    await refreshes(40);
    const pids = await store.read(async (query) => {
      const found = await query(
        `select pid from pg_stat_activity
         where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`,
      );
      return found.map(({ pid }) => Number(pid));
    });
    const thaw = await freezeBackends(pids);
    try {
      await setTimeout(freezeSeconds * 1000);
    } finally {
      thaw();
    }
    // Each session has tried again what was not answered, and has refreshed on.
    await refreshes(refreshed + 100);
    stopping.abort();
    await Promise.all(sessions);
    expect(pids.length).toBeGreaterThan(0);
    expect(Object.keys(Object.fromEntries(outcomes))).not.toContain("400");
    const ended = await store.read((query) =>
      query("select 1 from auth.authorizations where revoked_at is not null"),
    );
    expect(ended).toEqual([]);
    await server.stop();
    await store.drop();
  },
  120_000,
);

test.runIf(backends.includes("PostgreSQL"))(
  "a response that was lost before the database paused can be had after it, and then the window goes on",
  async () => {
    const store = await createAuthStore("PostgreSQL");
    const wire = await openDatabaseWire(store.env["DB_HOST"] ?? "", Number(store.env["DB_PORT"]));
    const env = { ...store.env, ...clients, DB_HOST: "127.0.0.1", DB_PORT: String(wire.port) };
    const server = await spawnAuthServer("PostgreSQL", { env });
    const api = authApi(server.base);
    const first = await api.newPair((await api.newIdentity()).id, brief);
    const lost = (await api.refresh(first.refresh_token, brief)).body as TokenPair;
    const isStamped = () => store.read((query) => query("select 1 from auth.rotation_batches"));
    await waitFor(async () => expect(await isStamped()).toHaveLength(1));
    const release = wire.hang();
    await setTimeout(freezeSeconds * 1000);
    release();
    const again = await waitFor(async () => {
      const response = await api.refresh(first.refresh_token, brief);
      expect(response.status).not.toBe(503);
      return response;
    });
    expect(again).toMatchObject({ status: 200, body: lasting(lost) });
    await waitFor(async () => expect((await api.refresh(first.refresh_token, brief)).status).toBe(400));
    const ended = await store.read((query) => query("select revocation_reason from auth.authorizations"));
    expect(ended).toEqual([{ revocation_reason: "REUSE" }]);
    await server.stop();
    await wire.close();
    await store.drop();
  },
  120_000,
);
