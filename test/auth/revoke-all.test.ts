/** A back-up brings revoked tokens back to life; `npm run revoke-all` ends them, and all others. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { authApi, mobileApp } from "../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { createTestDatabase, type TestDatabase } from "../support/backends.ts";
import { readContract } from "../support/contract-check.ts";
import { createMigratedDatabase } from "../support/migrated-database.ts";
import { canBackUp, dump, restore } from "../support/postgresql/back-up.ts";
import { killAll, startProgram } from "../support/program.ts";
import { backends, databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

describe.runIf(backends.includes("PostgreSQL") && canBackUp)("a restored back-up", () => {
  const cleanup = suiteCleanup();
  cleanup.defer(killAll);
  let directory: string;
  let restored: TestDatabase;
  let env: Record<string, string>;
  /** Pairs of two users, of whom one has revoked its own after the back-up was made. */
  let kept: { access_token: string; refresh_token: string };
  let revoked: typeof kept;

  const apiOf = ({ base }: AuthServer) => authApi(base, readContract("auth"));

  beforeAll(async () => {
    directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
    const original = await createMigratedDatabase();
    cleanup.defer(() => original.drop());
    restored = await createTestDatabase();
    cleanup.defer(() => restored.drop());
    env = { DATA_DIR: directory, OAUTH_SERVER_ISSUER: "http://127.0.0.1/api/auth" };
    const server = await startAuthServer("PostgreSQL", { env: { ...env, ...databaseEnvironment(original) } });
    try {
      const api = apiOf(server);
      kept = await api.newPair((await api.newIdentity()).id);
      revoked = await api.newPair((await api.newIdentity()).id);
      const file = join(directory, "gatepost.dump");
      dump(original.name, file);
      const answer = await api.call("revokeToken", { as: mobileApp, form: { token: revoked.refresh_token } });
      expect(answer.status).toBe(200);
      expect(restore(restored, file)).toMatch(/until[^a-z]*\d{4}-\d\d-\d\d /);
    } finally {
      await server.stop();
    }
    env = { ...env, ...databaseEnvironment(restored) };
  });

  const revokeAll = (...args: string[]) =>
    // What only a server has is not read.
    startProgram([process.execPath, "src/revoke-all.ts", ...args], { ...env, SERVER_PORT: "none" });

  test("has revoked tokens alive, until all are ended; whoever signs in afterwards stays", async () => {
    const server = await startAuthServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    const api = apiOf(server);
    expect((await api.introspect(revoked.access_token)).active).toBe(true);

    const asked = revokeAll();
    expect(await asked.ended()).toBe(1);
    expect(asked.stderr()).toContain("This signs everybody out");
    expect((await api.introspect(kept.access_token)).active).toBe(true);

    const done = revokeAll("--yes");
    expect(await done.ended(), done.output()).toBe(0);
    for (const { access_token, refresh_token } of [kept, revoked]) {
      expect((await api.introspect(access_token)).active).toBe(false);
      expect((await api.refresh(refresh_token)).status).toBe(400);
    }
    const identity = await api.newIdentity();
    const pair = await api.newPair(identity.id);
    expect((await api.introspect(pair.access_token)).active).toBe(true);
    // Each is told of by its event, as after any other ending.
    await waitFor(() => expect(server.logs().match(/auth\.authorization\.revoked\.v1/g)).toHaveLength(2));
    expect(server.logs().match(/"caller":"operator command"/g)).toHaveLength(2);
    expect((await api.introspect(pair.access_token)).active).toBe(true);
  });

  test("a database without a client is not taken for one whose tokens have ended", async () => {
    const dataDir = mkdtempSync(join(tmpdir(), "gatepost-empty-"));
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    const nothing = startProgram([process.execPath, "src/revoke-all.ts", "--yes"], { DATA_DIR: dataDir });
    expect(await nothing.ended()).not.toBe(0);
    expect(nothing.output()).not.toContain("is active any more");
  });

  test("a wrong name of the database is said in a sentence", async () => {
    const wrong = startProgram([process.execPath, "src/revoke-all.ts", "--yes"], {
      ...env,
      DB_NAME: "nosuch",
    });
    expect(await wrong.ended()).toBe(1);
    expect(wrong.stderr()).toContain("Check DB_NAME");
  });
});
