/** Introspection where processes differ: in their clocks, and in what they can reach of the database. */
import { describe, expect, test } from "vitest";
import { authApi } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { openDatabaseGate } from "../../support/database-gate.ts";
import { introspectors, refusal } from "../../support/introspectors.ts";
import { movableClock } from "../../support/movable-clock.ts";
import { backends } from "../../support/servers.ts";

describe.runIf(backends.includes("PostgreSQL"))("introspection by several processes on PostgreSQL", () => {
  test("a process whose clock is a little behind takes a token for active as soon as it is issued", async () => {
    const store = await createAuthStore("PostgreSQL");
    const clocks = [movableClock(), movableClock()] as const;
    clocks[0].move(5);
    const ahead = await startAuthServer("PostgreSQL", { env: store.env, clock: clocks[0] });
    const behind = await startAuthServer("PostgreSQL", { env: store.env, clock: clocks[1] });
    const api = authApi(ahead.base);
    const { access_token } = await api.newPair((await api.newIdentity()).id);
    for (const asker of introspectors(behind)) {
      expect(await asker.ask(access_token)).toMatchObject({ active: true });
      asker.close();
    }
    clocks[1].move(905);
    expect(await authApi(behind.base).introspect(access_token)).toEqual({ active: false });
    await Promise.all([ahead.stop(), behind.stop()]);
    await store.drop();
  });

  test("where the state cannot be read the answer is unavailable, never active", async () => {
    const store = await createAuthStore("PostgreSQL");
    const gate = await openDatabaseGate(store.env["DB_HOST"] ?? "", Number(store.env["DB_PORT"]));
    const env = { ...store.env, DB_HOST: "127.0.0.1", DB_PORT: String(gate.port) };
    const server = await startAuthServer("PostgreSQL", { env });
    const api = authApi(server.base);
    const { access_token } = await api.newPair((await api.newIdentity()).id);
    const askers = introspectors(server);
    for (const asker of askers) expect(await asker.ask(access_token)).toMatchObject({ active: true });
    await gate.close();
    for (const asker of askers) expect(await refusal(asker.ask(access_token)), asker.protocol).toBe(503);
    for (const asker of askers) asker.close();
    await server.stop();
    await store.drop();
  });
});
