/** A flood of guesses at invented names: it is shed early, and who needs no password notices nothing but the load. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, backoffice } from "../../support/auth-api.ts";
import { type AuthProcess, spawnAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { untilChecked } from "./guessing-fixture.ts";

describe.each(backends)("a flood of guesses on %s", (backend) => {
  let store: AuthStore;
  let server: AuthProcess;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    server = await spawnAuthServer(backend, { env: store.env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  test("is answered 503 with Retry-After beyond what waits, and every other grant is answered", async () => {
    const { id } = await api.newIdentity();
    const { refresh_token } = await api.newPair(id);
    const flood = Array.from({ length: 300 }, () =>
      api.token({ grant_type: "password", username: randomUUID(), password: "x" }, backoffice),
    );
    const others = await Promise.all([
      ...Array.from({ length: 20 }, () => api.token({ grant_type: "auth", auth_id: id })),
      ...Array.from({ length: 20 }, () => api.refresh(refresh_token)),
    ]);
    expect(others.map(({ status }) => status)).toEqual(Array(40).fill(200));
    const guesses = await Promise.all(flood);
    const shed = guesses.filter(({ status }) => status === 503);
    expect(shed.length).toBeGreaterThan(0);
    expect(new Set(guesses.map(({ status }) => status))).toEqual(new Set([400, 503]));
    for (const { headers, text } of shed) {
      expect(Number(headers.get("retry-after"))).toBeGreaterThan(0);
      expect(JSON.parse(text)).toMatchObject({ error: "temporarily_unavailable" });
    }
    // Nothing is left behind: a guess is judged again.
    const form = { grant_type: "password", username: id, password: "x" };
    const after = await untilChecked(() => api.token(form, backoffice));
    expect(after.status).toBe(400);
    // What found no room has counted for nobody, and was never written: there is a row for each other name, at most, and
    // the client's. On a machine that is slow enough, a response may be 503 though its guess was judged.
    await server.stop();
    const noRoom = shed.filter(({ text }) => text.includes("Too many passwords are being checked"));
    expect(noRoom.length).toBeGreaterThan(0);
    const rows = await store.read((query) => query("select from auth.attempts"));
    expect(rows.length - 1).toBeGreaterThan(guesses.length - shed.length);
    expect(rows.length - 1).toBeLessThanOrEqual(guesses.length - noRoom.length + 1);
  });
});
