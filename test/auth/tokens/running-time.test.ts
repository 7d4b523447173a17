/** Running time goes on from where it was when the database's clock is set, and pauses are noticed after that too. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { runningNow, startPulse } from "../../../src/auth/running-time.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const hour = 3_600;

describe.each(backends)("running time on %s", (backend) => {
  let db: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    const database = await own.open();
    db = database.db;
  });
  beforeEach(() => db.execute(sql`delete from auth.database_pulse`));

  /** The last beat, in seconds from now. */
  const lastBeat = (seconds: number) => sql`clock_timestamp() + ${seconds}::int * interval '1 second'`;
  async function seconds(moment: typeof runningNow, table = sql``): Promise<number> {
    const [row] = await rows<{ s: number }>(
      db,
      sql`select extract(epoch from ${moment} - clock_timestamp())::float8 as s ${table}`,
    );
    return Number(row?.s);
  }
  const beatenAt = () => seconds(sql`beaten_at`, sql`from auth.database_pulse`);

  test.each([
    ["back", hour],
    ["ahead", -hour],
  ])("goes on where the clock was set %s, and a pause afterwards counts", async (_, step) => {
    // The clock was set by this much after the last beat.
    await db.execute(sql`insert into auth.database_pulse values (1, ${lastBeat(step)}, interval '0')`);
    expect(await seconds(runningNow)).toBeCloseTo(step, -1);
    const pulse = startPulse(db);
    await waitFor(async () => expect(await beatenAt()).toBeCloseTo(0, -1));
    await pulse.stop();
    expect(await seconds(runningNow)).toBeCloseTo(step, -1);
    await db.execute(sql`update auth.database_pulse set beaten_at = ${lastBeat(-600)}`);
    expect(await seconds(runningNow)).toBeCloseTo(step - 600, -1);
  });
});
