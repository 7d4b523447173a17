/** A connection on its way to the server, and its checks. */
import dns from "node:dns";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { isDatabaseUnavailable } from "../../../../src/platform/base/database-errors.ts";
import {
  Connection,
  type ConnectionOptions,
  type OnClose,
} from "../../../../src/platform/database/connections/connection.ts";
import { createTestDatabase, type TestDatabase } from "../../../support/backends.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { backends, closedPort } from "../../../support/servers.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

describe.runIf(backends.includes("PostgreSQL"))("a connection to PostgreSQL", () => {
  const cleanup = suiteCleanup();
  let own: TestDatabase;
  beforeAll(async () => {
    own = await createTestDatabase();
    cleanup.defer(() => own.drop());
  });

  function connection(
    options: Pick<ConnectionOptions, "check"> & Partial<ConnectionOptions>,
    address: { host: string; port: number } = own,
    onClose: OnClose = () => undefined,
    { name: database, user: username, password } = own,
  ) {
    return new Connection(
      {
        ...{ address, prepare: true, timeoutMs: 5_000, connectTimeoutMs: 30_000, checkTimeoutMs: 1_000 },
        client: { ...address, database, username, password, ssl: false, fetch_types: false },
        ...options,
      },
      onClose,
    );
  }

  test("is not opened if the statements of its check take longer than it may, all in all", async () => {
    const opened = connection({
      connectTimeoutMs: 1_000,
      async check(query) {
        await query("select pg_sleep(0.7)");
        await query("select pg_sleep(0.7)");
        return undefined;
      },
    });
    await expect(opened.open()).rejects.toThrow("the database did not respond in time");
    expect(opened.isClosed).toBe(true);
  });

  test("that cannot be opened has ended for the reason that whoever opens it is told", async () => {
    const full = await createTestDatabase();
    cleanup.defer(() => full.drop());
    const admin = postgres(requiredPostgresUrl().href, { max: 1 });
    await admin`alter database ${admin(full.name)} connection limit 0`;
    await admin.end();
    const closed = { host: "127.0.0.1", port: closedPort };
    for (const [address, database, code] of [
      [closed, own, "ECONNREFUSED"],
      [full, full, "53300"],
    ] as const) {
      const reasons: unknown[] = [];
      const onClose: OnClose = (_, error) => void reasons.push(error);
      const check = async (query: (text: string) => Promise<unknown>) => void (await query("select 1"));
      const opened = connection({ check }, address, onClose, database);
      const error = await opened.open().catch((reason: unknown) => reason);
      expect(error).toMatchObject({ code });
      expect(reasons).toEqual([error]);
    }
  });

  test("says what each address of the host has said, in one line", async () => {
    const { lookup } = dns;
    const both = [
      { address: "127.0.0.1", family: 4 },
      { address: "::1", family: 6 },
    ];
    type Done = (error: null, addresses: typeof both) => void;
    Object.assign(dns, { lookup: (_host: string, _options: object, done: Done) => done(null, both) });
    const refused = connection(
      { check: async (query) => void (await query("select 1")) },
      { host: "both.test", port: closedPort },
    );
    const error = await refused.open().catch((reason: unknown) => reason);
    Object.assign(dns, { lookup });
    expect(isDatabaseUnavailable(error)).toBe(true);
    expect(error).toMatchObject({
      message: expect.stringMatching(/^connect ECONNREFUSED 127\.0\.0\.1:\d+; connect \w+ ::1:\d+/),
    });
  });
});
