/** The time of the database in a process whose own clock is set. */
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { createDatabaseClock } from "../../../src/platform/database/database-clock.ts";
import { movableClock } from "../../support/movable-clock.ts";
import { backends } from "../../support/servers.ts";
import { createServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const hour = 3_600;

describe.each(backends)("the clock of the database, %s", (backend) => {
  let db: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    ({ db } = await own.open());
  });

  test.each([-hour, hour])("is right at once where the process's is set by %i seconds", async (seconds) => {
    const clock = movableClock();
    const offsets: number[] = [];
    const database = createDatabaseClock({ db, clock, report: (offsetMs) => offsets.push(offsetMs) });
    await database.measure();
    clock.move(seconds);
    expect(Math.abs(database.now() - Date.now())).toBeLessThan(1_000);
    // It goes on by itself, and is measured again soon, which reports how far off the process's clock is.
    const watching = database.start();
    await waitFor(() => expect(offsets.length).toBeGreaterThan(0));
    await watching.stop();
    expect(offsets[0]).toBeCloseTo(-seconds * 1000, -5);
    expect(Math.abs(database.now() - Date.now())).toBeLessThan(1_000);
  });
});
