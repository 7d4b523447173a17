/** Behind PgBouncer in transaction mode, with fewer connections than callers, both services do all they do without. */
import { randomUUID } from "node:crypto";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { Connection } from "../src/platform/database/connections/connection.ts";
import { checkResponds } from "../src/platform/database/connections/session.ts";
import { authApi, internal, lasting, type TokenPair } from "./support/auth-api.ts";
import { createTestDatabase, type TestDatabase } from "./support/backends.ts";
import { findPgbouncer, type PgBouncer, startPgbouncer } from "./support/pgbouncer.ts";
import { requiredPostgresUrl } from "./support/postgresql/server.ts";
import { type PushServer, startPushServer } from "./support/push-server.ts";
import { backends, databaseEnvironment, type Environment, startOwnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

/** Connections that PgBouncer makes to PostgreSQL, at most. */
const serverConnections = 4;

const isTestable = backends.includes("PostgreSQL") && findPgbouncer() !== undefined;

describe.runIf(isTestable)("behind PgBouncer", () => {
  let database: TestDatabase;
  let pgbouncer: PgBouncer;
  let env: Environment;
  let admin: postgres.Sql;
  let server: PushServer;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    database = await createTestDatabase();
    cleanup.defer(() => database.drop());
    pgbouncer = await startPgbouncer(database, serverConnections);
    cleanup.defer(() => pgbouncer.stop());
    const url = requiredPostgresUrl();
    url.pathname = `/${database.name}`;
    admin = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    const direct = databaseEnvironment(database);
    env = {
      ...direct,
      DB_PORT: String(pgbouncer.port),
      DB_PORT_MIGRATION: direct["DB_PORT"] ?? "",
      DB_POOLER: "transaction",
    };
    server = await startPushServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
  });

  async function push(token: string, method: string, path: string, body?: object): Promise<Response> {
    const answer = await fetch(`${server.base}/v1/pushprovider/${path}`, {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body && { "content-type": "application/json" }),
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    expect(answer.ok, await answer.clone().text()).toBe(true);
    return answer;
  }

  test("fifteen callers sign in, refresh, are asked about, changed and revoked", async () => {
    const api = authApi(server.authBase);
    await Promise.all(
      Array.from({ length: 15 }, async () => {
        const { id } = await api.newIdentity();
        const first = await api.newPair(id);
        const again = await api.refresh(first.refresh_token);
        expect(again.status).toBe(200);
        const retried = await api.refresh(first.refresh_token);
        expect(retried.body).toMatchObject(lasting(again.body as TokenPair));
        expect(await api.introspect(first.access_token)).toMatchObject({ active: true });
        const path = { id };
        const changed = await api.call("updateIdentity", {
          as: internal,
          path,
          json: { metadata: { a: 1 } },
        });
        expect(changed.status).toBe(204);
        expect((await api.call("deleteIdentity", { as: internal, path })).status).toBe(204);
        expect(await api.introspect(first.access_token)).toEqual({ active: false });
      }),
    );
    const [found] = await admin`
      select count(*)::int as n from pg_stat_activity
      where datname = ${database.name} and usename = ${database.user}`;
    expect(found?.["n"]).toBeLessThanOrEqual(serverConnections);
  });

  test("statements that are asked for at the same time get their responses", async () => {
    const address = { host: "127.0.0.1", port: pgbouncer.port };
    const { name, user, password } = database;
    const connection = new Connection(
      {
        ...{ address, prepare: false, timeoutMs: 5_000, connectTimeoutMs: 5_000, checkTimeoutMs: 5_000 },
        client: { ...address, database: name, username: user, password, ssl: false, fetch_types: false },
        check: checkResponds,
      },
      () => undefined,
    );
    cleanup.defer(() => connection.terminate());
    await connection.open();
    // PgBouncer 1.18 lost a response whenever a statement was sent before the response to the check was there.
    for (let n = 0; n < 20; n += 1) {
      const parameters = [n];
      const [, first, second] = await Promise.all([
        connection.check(),
        connection.query("select $1::int as n", { parameters }),
        connection.query("select $1::int + 1 as n", { parameters }),
      ]);
      expect([first, second]).toEqual([[{ n }], [{ n: n + 1 }]]);
    }
  });

  test("a notification is sent to all devices", async () => {
    const expiration = new Date(Date.now() + 3_600_000).toISOString();
    const users = Array.from({ length: 5 }, () => randomUUID());
    for (const user of users) {
      const token = await server.userToken(user);
      await push(token, "POST", "token", { token: `device-of-${user}`, expiration });
    }
    const operator = await server.backofficeToken();
    const body = { title: "Hello", message: "How are you?", utcOffsets: [0] };
    const id = (await push(operator, "POST", "push", body)).headers.get("notification-id");
    await waitFor(async () => {
      const progress = await (await push(operator, "GET", `notifications/${id}`)).json();
      expect(progress).toMatchObject({ state: "COMPLETED", sent: users.length });
    });
  });

  test("a user whose commits are not durable is refused, as a shared session cannot be corrected", async () => {
    const { user, name } = database;
    const before = server.logs().length;
    await admin.unsafe(`alter role ${user} in database ${name} set synchronous_commit = off`);
    // Its server connections are made anew, and find the new default.
    await admin`
      select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name} and usename = ${user}`;
    const ready = async () => (await fetch(`${server.management}/health/ready`)).status;
    await waitFor(async () => expect(await ready()).toBe(503));
    await waitFor(() => expect(server.logs()).toContain("alter role … set synchronous_commit = 'on'"));
    await admin.unsafe(`alter role ${user} in database ${name} reset synchronous_commit`);
    await admin`
      select pg_terminate_backend(pid) from pg_stat_activity where datname = ${name} and usename = ${user}`;
    await waitFor(async () => expect(await ready()).toBe(200));
    await waitFor(() => expect(server.logs().slice(before)).toContain("The database is used again"));
  });

  test("a server that was not told of it says what to set", async () => {
    const uninformed = await startOwnServer("PostgreSQL", {
      env: { ...env, DB_POOLER: "none", SERVICES: "auth" },
      waitUntilReady: false,
    });
    await waitFor(() =>
      expect(uninformed.logs()).toContain("If a pooler is at DB_HOST, set DB_POOLER=transaction."),
    );
    await uninformed.stop();
  });
});
