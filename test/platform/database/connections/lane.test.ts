/** What is told of the wait for a connection, to those who run the service. */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { authMigrations } from "../../../../src/auth/service.ts";
import { Connector } from "../../../../src/platform/database/connections/connector.ts";
import { oneHost } from "../../../../src/platform/database/connections/hosts.ts";
import { Lane } from "../../../../src/platform/database/connections/lane.ts";
import { openDatabase } from "../../../../src/platform/database/open.ts";
import { createTestDatabase, postgresSettings } from "../../../support/backends.ts";
import { backends } from "../../../support/servers.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

describe.runIf(backends.includes("PostgreSQL"))("the wait for a connection: PostgreSQL", () => {
  const cleanup = suiteCleanup();

  test("is told of those who got one, and of those who gave up", async () => {
    const own = await createTestDatabase();
    cleanup.defer(() => own.drop());
    const waits: { lane: string; seconds: number }[] = [];
    const observer = {
      lane() {},
      waited: (lane: string, seconds: number) => void waits.push({ lane, seconds }),
      connectFailed() {},
    };
    // One connection for each lane.
    const settings = { ...postgresSettings(own), poolSize: 2 };
    const database = await openDatabase(settings, authMigrations, observer);
    cleanup.defer(() => database.close());
    let isHeld = true;
    const began = Promise.withResolvers<void>();
    const holding = database.db.transaction(async (tx) => {
      // A transaction that does nothing for five seconds is ended.
      while (isHeld) {
        await tx.execute(sql`select 1`);
        began.resolve();
        await setTimeout(200);
      }
    });
    await began.promise;
    waits.length = 0;
    try {
      const from = performance.now();
      await expect(database.db.execute(sql`select 1`)).rejects.toThrow();
      const elapsed = (performance.now() - from) / 1000;
      expect(waits).toEqual([{ lane: "writes", seconds: expect.any(Number) }]);
      expect(waits[0]?.seconds).toBeGreaterThan(3.9);
      expect(waits[0]?.seconds).toBeLessThanOrEqual(elapsed);
    } finally {
      isHeld = false;
      await holding;
    }
    await database.db.execute(sql`select 1`);
    expect(waits).toHaveLength(2);
    expect(waits[1]?.seconds).toBeLessThan(1);
  });
});

describe.runIf(backends.includes("PostgreSQL"))("the lifetime of a connection: PostgreSQL", () => {
  const cleanup = suiteCleanup();

  test.concurrent.each([1, 2])(
    "ends also where %i of them are always in use, and nobody notices",
    async (size) => {
      const own = await createTestDatabase();
      cleanup.defer(() => own.drop());
      const { host, port, name: database, user: username, password } = own;
      const lane = new Lane({
        name: "reads",
        connection: (address) => ({
          ...{ address, prepare: true, timeoutMs: 1_500, connectTimeoutMs: 3_000, checkTimeoutMs: 2_000 },
          client: { host, port, database, username, password, ssl: false, fetch_types: false },
          check: async (query) => {
            await query("select 1");
            return undefined;
          },
        }),
        ...{ size, sharing: 8, maxTransactions: 0, waitMs: 1_500, lifetimeMs: 1_000 },
        connector: new Connector(oneHost({ host, port }), () => undefined),
        observer: { lane() {}, waited() {}, connectFailed() {} },
      });
      cleanup.defer(() => lane.close());
      const until = performance.now() + 6_000;
      const pids: unknown[] = [];
      // More at a time than there are connections, so that each is in use whenever one use ends.
      async function work(): Promise<void> {
        while (performance.now() < until) {
          const [row] = await lane.use((one) => one.query("select pg_backend_pid() as pid, pg_sleep(0.01)"));
          pids.push(row);
        }
      }
      await Promise.all(Array.from({ length: 3 * size }, work));
      expect(new Set(pids.map((row) => JSON.stringify(row))).size).toBeGreaterThan(2 * size);
    },
    30_000,
  );
});
