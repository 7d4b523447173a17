/** A step of planning finds the same devices in both ways: by their zones, and among all devices of its range. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { planRange } from "../../../src/push/notifications/plan-range.ts";
import { endOfStep, isDense } from "../../../src/push/notifications/range-devices.ts";
import { createZones, zonesAt } from "../../../src/push/notifications/zones.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab } from "./notification-lab.ts";

describe.each(backends)("a step of planning on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });

  test("plans the devices at the offsets that are live and served, however they are found", async () => {
    const devices = await lab.addDevices(
      Array.from({ length: 60 }, (_, index) => ({
        userId: `user-${index % 25}`,
        provider: index % 7 === 0 ? "apns" : "fcm",
        utcOffset: [0, 60, -120][index % 3] ?? 0,
        expiresInSeconds: index % 11 === 0 ? -1 : 60,
      })),
    );
    // Mars is a zone that Node.js does not know: its devices are where their apps have last said.
    await lab.db.execute(sql`
      update push.devices set time_zone = (array['Europe/Berlin', 'Mars/Olympus', 'Asia/Tokyo'])[1 + id % 3]
      where id % 4 = 0`);
    const acceptedAt = Date.UTC(2026, 0, 15);
    const at = new Date(lab.clock.now());
    const [first = 0, last = 0] = [devices[10], devices[50]];
    async function plan(utcOffsets: readonly number[], dense: boolean) {
      const notificationId = await lab.accept([...utcOffsets]);
      const range = { notificationId, rangeNumber: 1, utcOffsets, after: first, through: last };
      const zones = await createZones()(lab.db, acceptedAt);
      await planRange(lab.db, { ...range, providers: ["fcm"], at, isDense: dense }, zones);
      const planned = (await lab.chunks(notificationId)).map(({ utcOffset, devices }) => ({
        utcOffset,
        devices: devices.toSorted((a, b) => a - b),
      }));
      return { planned, recipients: await lab.recipients(notificationId) };
    }
    for (const utcOffsets of [[0], [60], [60, -120], [0, 60, -120, 540]]) {
      const expected = await rows<{ utcOffset: number; devices: string; users: string }>(
        lab.db,
        sql`
          select minutes as "utcOffset", string_agg(id::text, ',' order by id) as devices,
            string_agg(user_id, ',') as users
          from (select *, case time_zone when 'Europe/Berlin' then 60 when 'Asia/Tokyo' then 540 else utc_offset end as minutes
            from push.devices) as d
          where id > ${first} and id <= ${last} and provider = 'fcm' and expires_at > ${at.toISOString()}::timestamptz
            and minutes = any(${`{${utcOffsets.join(",")}}`}::smallint[])
          group by minutes order by minutes`,
      );
      expect(expected.length).toBe(utcOffsets.length);
      const byZone = await plan(utcOffsets, false);
      expect(byZone.planned).toEqual(
        expected.map((one) => ({ utcOffset: one.utcOffset, devices: one.devices.split(",").map(Number) })),
      );
      expect(byZone.recipients).toEqual(
        [...new Set(expected.flatMap(({ users }) => users.split(",")))].sort(),
      );
      expect(await plan(utcOffsets, true)).toEqual(byZone);
    }
  });

  test("reads all devices of a range only if it is small and begins with devices at the zones", async () => {
    await lab.clear();
    const devices = await lab.addDevices(
      Array.from({ length: 400 }, (_, index) => ({
        userId: `user-${index}`,
        utcOffset: index < 200 ? (index % 2) * 60 : 60,
      })),
    );
    const [first = 0] = devices;
    const zones = await createZones()(lab.db, lab.clock.now());
    const dense = (utcOffsets: readonly number[], from: number, length: number) =>
      isDense(
        lab.db,
        { after: first - 1 + from, through: first - 1 + from + length },
        zonesAt(zones, utcOffsets),
        128,
      );
    expect(await dense([0, 60], 0, 128)).toBe(true);
    expect(await dense([60], 200, 128)).toBe(true);
    expect(await dense([0], 200, 128)).toBe(false);
    expect(await dense([60], 0, 128), "exactly half is not enough").toBe(false);
    expect(await dense([0, 60], 0, 129), "more than a step may read").toBe(false);
    expect(await dense([], 0, 128)).toBe(false);
  });

  test("a step whose range is dense at its beginning alone goes on to as many devices as it may have", async () => {
    await lab.clear();
    const devices = await lab.addDevices(
      Array.from({ length: 600 }, (_, index) => ({
        userId: `user-${index}`,
        utcOffset: index < 40 ? 0 : 60,
      })),
    );
    const [first = 0] = devices;
    const zones = await createZones()(lab.db, lab.clock.now());
    const end = (utcOffsets: readonly number[]) =>
      endOfStep(lab.db, { after: first - 1, through: first + 599 }, zonesAt(zones, utcOffsets), 128);
    expect(await end([0])).toBe(undefined);
    expect(await end([0, 60])).toBe(first - 1 + 128);
  });
});
