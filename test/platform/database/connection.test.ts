/** A connection on its way to the server, and its checks. */
import dns from "node:dns";
import { beforeAll, describe, expect, test } from "vitest";
import { isDatabaseUnavailable } from "../../../src/platform/base/database-errors.ts";
import { Connection, type ConnectionOptions } from "../../../src/platform/database/connection.ts";
import { createTestDatabase, type TestDatabase } from "../../support/backends.ts";
import { backends, closedPort } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.runIf(backends.includes("PostgreSQL"))("a connection to PostgreSQL", () => {
  const cleanup = suiteCleanup();
  let own: TestDatabase;
  beforeAll(async () => {
    own = await createTestDatabase();
    cleanup.defer(() => own.drop());
  });

  function connection(
    options: Pick<ConnectionOptions, "check">,
    address: { host: string; port: number } = own,
  ) {
    const { name: database, user: username, password } = own;
    return new Connection(
      {
        ...{ address, prepare: true, timeoutMs: 5_000, connectTimeoutMs: 1_000, checkTimeoutMs: 1_000 },
        client: { ...address, database, username, password, ssl: false, fetch_types: false },
        ...options,
      },
      () => undefined,
    );
  }

  test("is not opened if the statements of its check take longer than it may, all in all", async () => {
    const opened = connection({
      async check(query) {
        await query("select pg_sleep(0.7)");
        await query("select pg_sleep(0.7)");
        return undefined;
      },
    });
    await expect(opened.open()).rejects.toThrow("the database did not respond in time");
    expect(opened.isClosed).toBe(true);
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
