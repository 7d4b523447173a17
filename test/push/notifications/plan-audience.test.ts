/** Planning by audience: random ones get what a naive reading of the rules gives them, each device and user once. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { type Audience, type DeviceFilter, nobody } from "../../../src/push/notifications/audience.ts";
import { historyEntries } from "../../support/history-rows.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createPlanningLab, type PlanningLab } from "./planning-lab.ts";

/** `TEST_AUDIENCES=1000` compares as many. */
const audiences = Number(process.env["TEST_AUDIENCES"] ?? 60);

/** Pseudo-random numbers, the same in each run (mulberry32). */
function randomFrom(seed: number) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const among = <T>(values: readonly T[]): T => {
    const value = values[Math.floor(next() * values.length)];
    return value ?? expect.fail("nothing to choose from");
  };
  const chance = (share: number) => next() < share;
  /** Some of the values, at least one. */
  const some = <T>(values: readonly T[]): T[] => {
    const chosen = values.filter(() => chance(0.3));
    return chosen.length > 0 ? chosen : [among(values)];
  };
  return { among, chance, some };
}

/** Languages of devices as they are kept, each with the filters that it matches. */
const spoken: Readonly<Record<string, readonly string[]>> = {
  "de-Latn": ["de"],
  "de-Latn-AT": ["de", "de-AT"],
  "den-Latn": ["den"],
  "en-Latn-GB": ["en", "en-GB"],
  "sr-Cyrl-RS": ["sr", "sr-RS", "sr-Cyrl"],
  "sr-Latn-RS": ["sr-Latn"],
  "zh-Hans-CN": ["zh", "zh-Hans", "zh-CN"],
  "zh-Hant-TW": ["zh-Hant", "zh-TW"],
};
const tags = [...new Set(Object.values(spoken).flat()), "fr"];
/** Zones without summer time. Node.js does not know Mars, so its devices are where their apps have last said. */
const zones: Readonly<Record<string, number | undefined>> = {
  "Asia/Kolkata": 330,
  "Asia/Tokyo": 540,
  "Mars/Olympus": undefined,
};
const offsets = [0, 60, 330, 540, -120];
const platformOf: Readonly<Record<string, string>> = { apns: "ios", webpush: "web" };
const inUse = ["fcm", "apns", "webpush"] as const;

interface Person {
  readonly id: number;
  readonly userId: string;
  readonly provider: string;
  readonly language: string | null;
  readonly platform: string | null;
  readonly timeZone: string | null;
  readonly utcOffset: number;
  readonly isLive: boolean;
}

const users = Array.from({ length: 30 }, (_, index) => `u-${index}`);
/** Users whom the history knows, though some of them have no device. */
const known = users.filter((_, index) => index % 3 === 0);

function matches(device: Person, { languages, timeZones, utcOffsets, platforms }: DeviceFilter): boolean {
  const { language, timeZone, provider } = device;
  const offset = zones[timeZone ?? ""] ?? device.utcOffset;
  const platform = device.platform ?? platformOf[provider];
  return (
    (!languages || languages.some((tag) => language !== null && spoken[language]?.includes(tag))) &&
    (!timeZones || timeZones.some((name) => name === timeZone)) &&
    (!utcOffsets || utcOffsets.includes(offset)) &&
    (!platforms || platforms.some((name) => name === platform))
  );
}

/** Whom an audience is for, device by device, and user by user. Nothing reaches who has neither device nor history. */
function naive(audience: Audience, devices: readonly Person[], history = true) {
  const named = [...audience.users, ...audience.personal.map(({ user }) => user)];
  const isOut = (device: Person) =>
    audience.except.some((filter) => matches(device, filter)) || audience.exceptUsers.includes(device.userId);
  const planned = devices.filter(
    (device) =>
      device.isLive &&
      inUse.some((provider) => provider === device.provider) &&
      (audience.everybody ||
        named.includes(device.userId) ||
        audience.anyOf.some((filter) => matches(device, filter))) &&
      !isOut(device),
  );
  const withoutDevice = named.filter(
    (user) =>
      history &&
      known.includes(user) &&
      !audience.exceptUsers.includes(user) &&
      !devices.some(({ userId, isLive }) => userId === user && isLive),
  );
  return {
    devices: planned.map(({ id }) => id).sort((a, b) => a - b),
    recipients: [...new Set([...planned.map(({ userId }) => userId), ...withoutDevice])].sort(),
  };
}

describe.each(backends)("planning by audience on %s", (backend) => {
  let lab: PlanningLab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
  });

  /** Devices of all kinds, of most of the users. */
  async function populate({ among, chance }: ReturnType<typeof randomFrom>): Promise<Person[]> {
    const devices = Array.from({ length: 70 }, () => {
      const isLive = chance(0.9);
      const provider = among([...inUse, "outbox" as const]);
      const fields = { userId: among(users.slice(0, 26)), provider, utcOffset: among(offsets) };
      return { ...fields, isLive, expiresInSeconds: isLive ? 86_400 : -1 };
    });
    const ids = await lab.addDevices(devices);
    const said = devices.map((device, index) => ({
      ...device,
      id: ids[index] ?? 0,
      language: chance(0.8) ? among(Object.keys(spoken)) : null,
      platform: chance(0.4) ? among(["ios", "android", "web"]) : null,
      timeZone: chance(0.5) ? among(Object.keys(zones)) : null,
    }));
    await lab.db.execute(sql`
      update push.devices set language = said.language, platform = said.platform, time_zone = said."timeZone"
      from jsonb_to_recordset(${JSON.stringify(said)}::jsonb)
        as said (id bigint, language text, platform text, "timeZone" text)
      where devices.id = said.id`);
    await lab.db.execute(sql`
      insert into push.history_users
      select one, nextval('push.history_user_numbers') from unnest(${`{${known.join(",")}}`}::text[]) as one`);
    return said;
  }

  /** An audience of any kind, with filters that overlap each other and the names. */
  function anyAudience({ chance, some }: ReturnType<typeof randomFrom>): Audience {
    const filter = (): DeviceFilter => {
      const members = {
        ...(chance(0.5) && { languages: some(tags) }),
        ...(chance(0.3) && { timeZones: some(Object.keys(zones)) }),
        ...(chance(0.3) && { utcOffsets: some(offsets) }),
        ...(chance(0.3) && { platforms: some(["ios", "android", "web"] as const) }),
      };
      return Object.keys(members).length > 0 ? members : { platforms: ["ios"] };
    };
    const filters = (share: number) =>
      chance(share) ? Array.from({ length: 1 + Number(chance(0.4)) }, filter) : [];
    const personal = chance(0.1) ? some(users).map((user) => ({ user, variables: { name: user } })) : [];
    if (personal.length > 0) return { ...nobody, personal };
    return {
      users: chance(0.5) ? some(users) : [],
      personal,
      anyOf: filters(0.6),
      except: filters(0.4),
      exceptUsers: chance(0.3) ? some(users) : [],
      everybody: chance(0.15),
    };
  }

  interface PlannedFor extends Record<string, unknown> {
    readonly id: string;
    /** Each as often as it is in chunks. */
    readonly devices: readonly number[];
    readonly recipients: readonly string[];
    /** How many the notification has. */
    readonly count: number;
  }
  async function planned(): Promise<Map<string, PlannedFor>> {
    const found = await rows<PlannedFor>(
      lab.db,
      sql`
        select n.id::text, n.recipients::int as count,
          (select coalesce(jsonb_agg(device order by device), '[]') from push.delivery_chunks c
            cross join unnest(device_ids) as device where c.notification_id = n.id) as devices,
          (select coalesce(jsonb_agg(user_id order by user_id collate "C"), '[]') from ${historyEntries}
            where notification_id = n.id) as recipients
        from push.notifications n`,
    );
    return new Map(found.map((one) => [one.id, one]));
  }

  test("random ones are for the devices and users that the rules say, each once", async () => {
    const random = randomFrom(50);
    const devices = await populate(random);
    const cases = await Array.fromAsync({ length: audiences }, async () => {
      const audience = anyAudience(random);
      const history = random.chance(0.7);
      // Some are planned as they are accepted, where they are small.
      const options = { history, ...(random.chance(0.3) && { providers: inUse }) };
      return { audience, history, id: await lab.acceptTo(audience, options) };
    });
    await lab.plan(12, inUse);
    const found = await planned();
    for (const { id, audience, history } of cases) {
      const expected = naive(audience, devices, history);
      const { recipients } = expected;
      expect(found.get(id), JSON.stringify(audience)).toEqual({
        ...{ id, count: recipients.length },
        ...(history ? expected : { ...expected, recipients: [] }),
      });
    }
  }, 600_000);

  test("devices that change hands or are renewed while it is planned are planned once, or not at all", async () => {
    const random = randomFrom(51);
    const { among, chance } = random;
    for (let round = 0; round < audiences / 10; round += 1) {
      await lab.clear();
      const devices = await populate(random);
      const audience = anyAudience(random);
      const id = await lab.acceptTo(audience);
      await lab.planSteps(Math.min(among([1, 2, 3]), await lab.rangesLeft()));
      const before = (await planned()).get(id)?.devices ?? [];
      const moved = devices.filter(() => chance(0.1));
      for (const device of moved) await lab.handOver(device.id, among(users));
      const stayed = devices.filter((device) => !moved.includes(device));
      const renewed = stayed.filter(({ isLive }) => isLive && chance(0.1));
      const isRenewed = (one: number) => renewed.some((device) => device.id === one);
      const speaks = among(Object.keys(spoken));
      await lab.db.execute(sql`
        update push.devices set renewed_at = now(), expires_at = now() + interval '2 days', language = ${speaks}
        where id = any(${`{${renewed.map((device) => device.id).join(",")}}`}::bigint[])`);
      await lab.plan(12, inUse);
      const found = (await planned()).get(id) ?? expect.fail("it is gone");
      const expected = new Set([...before, ...naive(audience, stayed).devices]);
      // Of those that speak another language now, either is right.
      expect(
        found.devices.filter((one) => !isRenewed(one)),
        JSON.stringify(audience),
      ).toEqual([...expected].filter((one) => !isRenewed(one)).sort((a, b) => a - b));
      expect(found.devices).toEqual([...new Set(found.devices)]);
      expect(found.recipients).toEqual([...new Set(found.recipients)]);
      const owners = stayed.filter((device) => found.devices.includes(device.id)).map(({ userId }) => userId);
      expect(found.recipients).toEqual(expect.arrayContaining(owners));
    }
  }, 600_000);
});
