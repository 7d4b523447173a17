/** What is told of the wait for a connection, to those who run the service. */
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { createTestDatabase } from "../../support/backends.ts";
import { backends } from "../../support/servers.ts";
import { postgresSettings } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

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
    const { promise: held, resolve: release } = Promise.withResolvers<void>();
    const began = Promise.withResolvers<void>();
    const holding = database.db.transaction(async (tx) => {
      await tx.execute(sql`select 1`);
      began.resolve();
      await held;
    });
    await began.promise;
    waits.length = 0;
    await expect(database.db.execute(sql`select 1`)).rejects.toThrow();
    expect(waits).toEqual([{ lane: "writes", seconds: expect.closeTo(4, 0) }]);
    release();
    await holding;
    await database.db.execute(sql`select 1`);
    expect(waits).toHaveLength(2);
    expect(waits[1]?.seconds).toBeLessThan(1);
  });
});
