/** Running time goes on from where it was when the database's clock is set, and pauses are noticed after that too. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { runningNow, startPulse, surelyNow } from "../../../src/auth/running-time.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const hour = 3_600;
const day = 24 * hour;

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
  async function seconds(moment: typeof runningNow, table = sql``, executor = db): Promise<number> {
    const [row] = await rows<{ s: number }>(
      executor,
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

  // At any date, one of these is in summer and another in winter.
  test.each([90, 150, 210, 270])(
    "a pause of %i days has days of 24 hours, whatever the time zone",
    async (days) => {
      await db.execute(sql`
      insert into auth.database_pulse values (1, ${lastBeat(0)}, ${days}::int * interval '1 day')`);
      const behind = await db.transaction(async (tx) => {
        await tx.execute(sql`set local timezone = 'Europe/Berlin'`);
        return [await seconds(runningNow, sql``, tx), await seconds(surelyNow, sql``, tx)];
      });
      for (const each of behind) expect(each).toBeCloseTo(-days * day, -2);
    },
  );

  /** Gives the first beat, and the one with which the first period begins. */
  async function begin(): Promise<void> {
    await db.execute(sql`insert into auth.database_pulse values (1, ${lastBeat(0)}, interval '0')`);
    await beat();
  }
  /** Gives the next beat, a second after the one before. */
  async function beat(): Promise<void> {
    await db.execute(sql`update auth.database_pulse set beaten_at = beaten_at - interval '2 seconds'`);
    const pulse = startPulse(db);
    await waitFor(async () => expect(await beatenAt()).toBeGreaterThan(-1));
    await pulse.stop();
  }
  /** Days pass in which the database can be used. */
  async function pass(days: number): Promise<void> {
    const by = sql`${days}::int * interval '1 day'`;
    await db.execute(sql`update auth.database_pulse set period_began_at = period_began_at - ${by}`);
    await beat();
  }
  /** Sets the clock ahead, or back by a negative number, after the last beat; what was written is as much older then. */
  async function setClock(ahead: number): Promise<void> {
    const by = sql`${ahead}::int * interval '1 second'`;
    await db.execute(
      sql`update auth.database_pulse set beaten_at = beaten_at - ${by}, period_began_at = period_began_at - ${by}`,
    );
    await beat();
  }

  test("goes on as before, while pauses of long ago put nothing off", async () => {
    // As a version has left it that added all pauses up.
    await db.execute(sql`
      insert into auth.database_pulse values (1, ${lastBeat(0)}, ${60 * day}::int * interval '1 second')`);
    await beat();
    expect(await seconds(surelyNow)).toBeCloseTo(-60 * day, -2);
    await pass(9);
    expect(await seconds(surelyNow)).toBeCloseTo(0, -2);
    expect(await seconds(runningNow)).toBeCloseTo(-60 * day, -2);
  });

  test("a clock that was years behind at first puts off for days, and not for years, what comes by it", async () => {
    const behind = 26 * 365 * day;
    await begin();
    await setClock(behind);
    expect(await seconds(surelyNow)).toBeCloseTo(-behind, -2);
    await pass(7);
    expect(await seconds(surelyNow)).toBeCloseTo(-behind, -2);
    await pass(2);
    expect(await seconds(surelyNow)).toBeCloseTo(-behind, -2);
    await pass(9);
    expect(await seconds(surelyNow)).toBeCloseTo(0, -2);
  });

  test("nothing has surely come by a clock that is set ahead for a week, however often, and then back", async () => {
    await begin();
    for (let turn = 0; turn < 3; turn += 1) {
      await setClock(30 * day);
      await pass(7);
      expect(await seconds(surelyNow)).toBeCloseTo(-30 * day, -2);
      await setClock(-30 * day);
      expect(await seconds(surelyNow)).toBeCloseTo(0, -2);
      await pass(4);
    }
  });

  test("nothing has surely come by a clock that is set ahead again, soon after it was so for a month", async () => {
    await begin();
    await setClock(30 * day);
    for (const days of [9, 9, 9]) await pass(days);
    expect(await seconds(surelyNow)).toBeCloseTo(0, -2);
    await setClock(-30 * day);
    await setClock(30 * day);
    await pass(7);
    expect(await seconds(surelyNow)).toBeCloseTo(-30 * day, -2);
  });
});
