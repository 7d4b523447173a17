/** Previews of audiences: named users are counted one by one, filters in samples once there are many devices. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { rowCount } from "../../../src/platform/database/sql/statements.ts";
import { languageRange } from "../../../src/push/content/languages.ts";
import { type Audience, nobody } from "../../../src/push/notifications/audience.ts";
import { createCountAudience } from "../../../src/push/notifications/count-audience.ts";
import type { CountedShare } from "../../../src/push/notifications/preview.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createPlanningLab, type PlanningLab } from "./planning-lab.ts";

describe.each(backends)("counting the devices of an audience on %s", (backend) => {
  let lab: PlanningLab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createPlanningLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  const providers = ["fcm", "apns"] as const;
  const count = (audience: Partial<Audience>, history = true, db = lab.db) =>
    createCountAudience(db, providers)(
      { audience: { ...nobody, ...audience }, delivery: { priority: "high", history } },
      lab.clock.now(),
    );
  const spoken = async (ids: readonly (number | undefined)[], language: string, platform: string | null) => {
    for (const id of ids)
      await lab.db.execute(
        sql`update push.devices set language = ${languageRange(language)}::text, platform = ${platform}::text
          where id = ${id ?? 0}::bigint`,
      );
  };
  const shares = (all: readonly CountedShare[]) =>
    Object.fromEntries(
      all.map(({ provider, language, platform, devices }) => [
        `${provider} ${language} ${platform}`,
        devices,
      ]),
    );

  async function fewDevices() {
    const [a, b, c, d] = await lab.addDevices([
      { userId: "a", provider: "fcm", utcOffset: 60 },
      { userId: "a", provider: "apns", utcOffset: 60 },
      { userId: "b", provider: "fcm" },
      { userId: "c", provider: "fcm" },
      { userId: "a", provider: "webpush" },
      { userId: "d", provider: "fcm", expiresInSeconds: -1 },
    ]);
    await spoken([a, b], "de-AT", null);
    await spoken([c], "en", "android");
    await spoken([d], "de", "web");
  }

  test("named users, with devices that are live and of a provider in use", async () => {
    await fewDevices();
    const counted = await count({ users: ["a", "b", "d", "x"] });
    expect(counted).toMatchObject({ users: 2, excluded: 0, withoutDevice: 2, isEstimate: false });
    expect(shares(counted.shares)).toEqual({
      [`fcm ${languageRange("de-AT")} null`]: 1,
      [`apns ${languageRange("de-AT")} ios`]: 1,
      [`fcm ${languageRange("en")} android`]: 1,
    });
  });

  test("users are those whom planning finds: without a history, none who have no device", async () => {
    await fewDevices();
    await lab.addDevices([{ userId: "e", provider: "webpush" }]);
    await lab.db.execute(sql`
      insert into push.history_users
      select one, nextval('push.history_user_numbers') from unnest('{b,e,x}'::text[]) as one`);
    const users = ["a", "b", "e", "x", "y"];
    for (const [history, found] of [
      [true, 3],
      [false, 2],
    ] as const) {
      const id = await lab.acceptTo({ users }, { history, providers });
      expect((await lab.progress(id)).recipients).toBe(found);
      expect((await count({ users }, history)).users).toBe(found);
    }
  });

  test("exceptions leave devices out, and users who have no others", async () => {
    await fewDevices();
    const counted = await count({
      users: ["a", "b", "c"],
      except: [{ platforms: ["ios"] }],
      exceptUsers: ["b"],
    });
    expect(counted).toMatchObject({ users: 2, excluded: 2, withoutDevice: 0 });
    expect(counted.shares.reduce((sum, { devices }) => sum + devices, 0)).toBe(2);
  });

  test("filters count devices, beside those of named users, each once", async () => {
    await fewDevices();
    const german = await count({ anyOf: [{ languages: ["de"] }], users: ["a"] });
    expect(german).toMatchObject({ users: undefined, isEstimate: false });
    expect(german.shares.reduce((sum, { devices }) => sum + devices, 0)).toBe(3);
    const atOffset = await count({ anyOf: [{ utcOffsets: [60] }] });
    expect(atOffset.shares.reduce((sum, { devices }) => sum + devices, 0)).toBe(2);
    expect((await count({ everybody: true })).shares.reduce((sum, { devices }) => sum + devices, 0)).toBe(4);
  });

  test.runIf(backend === "PostgreSQL")("many devices are estimated within a tenth", async () => {
    await lab.db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, language, expires_at, registered_at, renewed_at)
      select 'u' || n, 'fcm', 't' || n, sha256(('t' || n)::bytea), 0, case when random() < 0.3 then 'de-Latn' else 'en-Latn' end,
        now() + interval '1 year', now(), now()
      from generate_series(1, 40000) as n`);
    const counted = await count({ anyOf: [{ languages: ["de"] }] });
    expect(counted.isEstimate).toBe(true);
    const [share] = counted.shares;
    expect(share?.devices).toBeGreaterThan(10_800);
    expect(share?.devices).toBeLessThan(13_200);
  });

  test("no plan is kept that would compare each device with each of many users", async () => {
    const kept = await lab.db.transaction(async (tx) => {
      await count({ everybody: true, exceptUsers: ["a"] }, true, tx);
      return rowCount(tx, sql`select from pg_prepared_statements where statement like '%is_out from%'`);
    });
    expect(kept).toBe(0);
  });
});
