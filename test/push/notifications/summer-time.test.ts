/** Devices whose apps have said a time zone are found at its offset of the day, without any change of their rows. */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createDevices } from "../../../src/push/devices/devices.ts";
import { planRange } from "../../../src/push/notifications/plan-range.ts";
import { endOfStep, ignorePageCosts } from "../../../src/push/notifications/range-devices.ts";
import { createZones } from "../../../src/push/notifications/zones.ts";
import { analyze } from "../../support/analyze.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { providers } from "../devices/device-store.ts";
import { createLab, type Lab } from "./notification-lab.ts";

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
    const devices = createDevices({
      db: lab.db,
      clock: lab.clock,
      providers,
      defaultProvider: "outbox",
      maxPerUser: 20,
    });
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

  test.each([
    ["at half past two, in autumn", "2027-10-31", ["00:30", "01:30"], 2],
    ["at half past two, in spring", "2027-03-28", ["00:30", "01:30"], 0],
    ["in the morning, in autumn", "2027-10-31", ["07:00", "08:00"], 1],
    ["in the morning, in spring", "2027-03-28", ["07:00", "08:00"], 1],
  ] as const)(
    "brings a zone a send of each offset's local hour %s",
    async (_, day, [first, second], times) => {
      moveTo("2027-01-20T12:00:00Z");
      await save("berlin", "Europe/Berlin");
      moveTo(`${day}T${first}:00Z`);
      const [at120] = await recipients([120]);
      moveTo(`${day}T${second}:00Z`);
      const [at60] = await recipients([60]);
      expect([...(at120 ?? []), ...(at60 ?? [])]).toEqual(Array(times).fill("berlin"));
    },
  );

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

  test("needs the zones that are in use, which it jumps to in the index, and the devices at them alone", async () => {
    const zones = Intl.supportedValuesOf("timeZone").slice(0, 40);
    await lab.db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, time_zone, expires_at, registered_at, renewed_at)
      select 'u' || n, 'outbox', n::text, sha256(n::text::bytea), 0,
        (array[${sql.join(
          zones.map((zone) => sql`${zone}::text`),
          sql`, `,
        )}])[1 + n % 40], now() + interval '1 day', now(), now()
      from generate_series(1, 20000) as n`);
    await analyze(backend, lab.db, "push.devices");
    const statements: SQL[] = [];
    const db = new Proxy(lab.db, {
      get: (target, name) =>
        name === "execute"
          ? (run: SQL) => {
              statements.push(run);
              return lab.db.execute(run);
            }
          : Reflect.get(target, name),
    });
    const acceptedAt = lab.clock.now();
    const found = await createZones()(db, acceptedAt);
    expect(found.ids).toEqual(zones.toSorted());
    const range = { notificationId: await lab.accept([0]), utcOffsets: [0], rangeNumber: 1, isDense: false };
    const all = { ...range, after: 0, through: Number.MAX_SAFE_INTEGER };
    const at = zones.slice(0, 2).map((id) => ({ id, utcOffset: 0 }));
    const [lowest] = await rows<{ id: number }>(lab.db, sql`select min(id)::int as id from push.devices`);
    const few = {
      ids: found.ids,
      offsets: new Map(zones.map((zone) => [zone, zone === at[0]?.id ? 0 : 60])),
    };
    const step = { ...all, providers: ["outbox"], at: new Date(acceptedAt) } as const;
    await ignorePageCosts(db, async () => {
      expect(await endOfStep(db, all, at, 100)).toBe((lowest?.id ?? 0) + 1_599);
      await planRange(db, step, few);
    });
    // With the settings that some of them are, as in the transaction of a step.
    const plans = await lab.db.transaction(async (tx) => {
      const found: string[] = [];
      for (const statement of statements) {
        const isSettings = new PgDialect().sqlToQuery(statement).sql.includes("enable_seqscan");
        const explain = isSettings ? sql`` : sql`explain (analyze, costs off, timing off, summary off)`;
        const plan = await rows<{ "QUERY PLAN": string }>(tx, sql`${explain} ${statement}`);
        if (!isSettings) found.push(plan.map((row) => row["QUERY PLAN"]).join("\n"));
      }
      return found;
    });
    const read = (plan = "") =>
      [...plan.matchAll(/Index Scan (?:using|on) devices_zone.*\(actual rows=(\d+)\S* loops=(\d+)\)/g)].map(
        ([, found, loops]) => Number(found) * Number(loops),
      );
    const [jumps, first, sample, ...others] = plans;
    // Four ids, of which most would have to be at the zones: either index finds them.
    expect(sample).toMatch(/Index Scan using devices_(zone|pkey) on devices .*\n +Index Cond: .*id <= /);
    for (const plan of [jumps, first, ...others])
      expect(plan).not.toMatch(/Seq Scan on devices|devices_pkey/);
    expect(first).toMatch(/using devices_zone on devices \(actual rows=1\S* loops=2\)/);
    expect(jumps).toMatch(/Index Scan using devices_zone on devices \(actual rows=\S+ loops=40\)/);
    // 200 ids, and twice as many each time, until there are more than 100 devices: then it reads no further.
    expect(others.slice(0, -1).map(read)).toEqual([[10], [20], [40], [80], expect.any(Array)]);
    expect(others.at(-2)).toContain("(actual rows=101");
    expect(read(others.at(-1))).toContain(500);
  });
});
