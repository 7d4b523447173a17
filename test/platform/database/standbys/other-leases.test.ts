/** Endings at a process that reads from no standbys: how long they wait for the leases of processes that do. */
import { setTimeout } from "node:timers/promises";
import postgres from "postgres";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readLeases } from "../../../../src/auth/schema.ts";
import { authMigrations } from "../../../../src/auth/service.ts";
import { longestLeaseMs } from "../../../../src/platform/database/standbys/leases.ts";
import { createOtherLeases } from "../../../../src/platform/database/standbys/other-leases.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { backends } from "../../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../../support/service-database.ts";
import { stopwatch } from "../../../support/stopwatch.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

const reader = "0190a6a0-0000-7000-8000-000000000001";

describe.runIf(backends.includes("PostgreSQL"))("leases of other processes, on PostgreSQL", () => {
  const cleanup = suiteCleanup();
  let admin: postgres.Sql;
  let wait: () => Promise<void>;
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const url = requiredPostgresUrl();
    url.pathname = `/${own.settings.name}`;
    admin = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    const { reads } = await own.open();
    wait = createOtherLeases({ db: reads, table: readLeases });
  });
  beforeEach(() => admin`delete from auth.read_leases`);

  /** @returns the milliseconds that an ending waits now */
  async function waited(): Promise<number> {
    const began = stopwatch();
    await wait();
    return began();
  }

  test("are waited for while one may run, and not where no process reads from a standby", async () => {
    await admin`insert into auth.read_leases values (${reader}, 1, '{}')`;
    expect(await waited()).toBeLessThan(longestLeaseMs / 2);
    await admin`update auth.read_leases set beat = 2, servers = '{standby}'`;
    expect(await waited()).toBeGreaterThan(longestLeaseMs / 2);
  });

  test("may run from a beat that is not visible yet, for one more lease", async () => {
    await admin`insert into auth.read_leases values (${reader}, 1, '{standby}')`;
    const began = stopwatch();
    await wait();
    // The beat that was sent meanwhile waits for a standby, so the row is the one of before.
    expect(began()).toBeLessThan(2 * longestLeaseMs - 100);
    expect(await waited()).toBeGreaterThan(longestLeaseMs / 2);
    // A process that has been silent for so long has ended; a timer may be a little early.
    await setTimeout(20);
    expect(await waited()).toBeLessThan(longestLeaseMs / 2);
  });
});
