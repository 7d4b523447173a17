/** Devices whose apps have said a time zone are found at its offset of the day, without any change of their rows. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createDevices } from "../../../src/push/devices/devices.ts";
import { zoneOffsets } from "../../../src/push/notifications/zone-offsets.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { providers } from "../devices/device-store.ts";
import { createLab, type Lab, testUser } from "./notification-lab.ts";

describe.each(backends)("summer time on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  const moveTo = (moment: string) => lab.clock.move((Date.parse(moment) - lab.clock.now()) / 1000);
  const allRows = () => rows(lab.db, sql`select * from push.devices order by id`);

  async function save(userId: string, utcOffset: number | string): Promise<void> {
    const devices = createDevices({ db: lab.db, clock: lab.clock, providers, defaultProvider: "outbox" });
    const expiration = new Date("2099-01-01T00:00:00Z");
    await devices.save(userId, { token: `of-${userId}`, expiration, utcOffset });
  }

  /** Who is sent a notification to these offsets, and at which offsets they are counted. */
  async function recipients(utcOffsets: readonly number[], window?: number) {
    const id = await lab.accept([...utcOffsets]);
    await lab.plan(window);
    const users = await lab.recipients(id);
    const chunks = await lab.chunks(id);
    const devices = chunks.flatMap((chunk) => chunk.devices);
    expect(devices).toHaveLength(users.length);
    return [users, chunks.map(({ utcOffset }) => utcOffset)];
  }

  test("changes who is at an offset, at the moment of the change, and no row", async () => {
    moveTo("2027-01-20T12:00:00Z");
    await save("berlin", "Europe/Berlin");
    await save("fixed-60", 60);
    await save("fixed-120", 120);
    await save("lagos", "Africa/Lagos");
    const before = await allRows();
    const winter = [["berlin", "fixed-60", "lagos"], [60]];
    const summer = [["berlin", "fixed-120"], [120]];

    moveTo("2027-03-28T00:59:59Z");
    expect(await recipients([60])).toEqual(winter);
    expect(await recipients([120])).toEqual([["fixed-120"], [120]]);
    moveTo("2027-03-28T01:00:00Z");
    expect(await recipients([120])).toEqual(summer);
    expect(await recipients([60])).toEqual([["fixed-60", "lagos"], [60]]);
    expect(await recipients([120], 1)).toEqual([
      ["berlin", "fixed-120"],
      [120, 120],
    ]);
    expect(await recipients([60, 120])).toEqual([
      ["berlin", "fixed-120", "fixed-60", "lagos"],
      [60, 120],
    ]);
    moveTo("2027-10-31T01:00:00Z");
    expect(await recipients([60])).toEqual(winter);
    expect(await allRows()).toEqual(before);
  });

  test("is that of the acceptance for all steps of planning, whenever they run", async () => {
    moveTo("2027-03-28T00:59:00Z");
    await save("berlin", "Europe/Berlin");
    const id = await lab.accept([60]);
    moveTo("2027-03-28T01:01:00Z");
    await lab.plan(1);
    expect(await lab.recipients(id)).toEqual(["berlin"]);
    expect(await lab.chunks(id)).toMatchObject([{ utcOffset: 60, planned: 1 }]);
  });

  test("does not apply where Node.js does not know the zone: the offset of the registration stands", async () => {
    moveTo("2027-01-20T12:00:00Z");
    await save("mars", 60);
    await lab.db.execute(sql`update push.devices set time_zone = 'Mars/Olympus_Mons'`);
    expect(await recipients([60])).toEqual([["mars"], [60]]);
  });

  test("counts the devices of a test run at the offset of their zone", async () => {
    moveTo("2027-07-20T12:00:00Z");
    await save(testUser, "Europe/Berlin");
    await lab.db.execute(sql`update push.devices set utc_offset = 60`);
    await lab.notifications.startTestRun();
    await lab.plan();
    const [run] = await rows<{ id: string }>(lab.db, sql`select id::text from push.notifications`);
    expect(await lab.chunks(run?.id ?? "")).toMatchObject([{ utcOffset: 120 }]);
  });

  test("needs the zones that are in use, which the index has without the devices in them", async () => {
    const zones = Intl.supportedValuesOf("timeZone").slice(0, 40);
    await lab.db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, time_zone, expires_at, registered_at, renewed_at)
      select 'u' || n, 'outbox', n::text, sha256(n::text::bytea), 0,
        (array[${sql.join(
          zones.map((zone) => sql`${zone}::text`),
          sql`, `,
        )}])[1 + n % 40], now(), now(), now()
      from generate_series(1, 20000) as n`);
    await lab.db.execute(sql`analyze push.devices`);
    const id = await lab.accept([60]);
    let statement = sql``;
    const execute = (run: typeof statement) => {
      statement = run;
      return lab.db.execute(run);
    };
    const db = new Proxy(lab.db, {
      get: (target, name) => (name === "execute" ? execute : Reflect.get(target, name)),
    });
    expect(Object.keys(await zoneOffsets(db, id))).toHaveLength(40);
    const plan = await rows<{ "QUERY PLAN": string }>(
      lab.db,
      sql`explain (analyze, costs off, timing off) ${statement}`,
    );
    const text = plan.map((row) => row["QUERY PLAN"]).join("\n");
    expect(text).toMatch(/Index Only Scan using devices_time_zone on devices \(actual .*rows=.* loops=40\)/);
    expect(text).not.toContain("Seq Scan on devices");
  });
});
