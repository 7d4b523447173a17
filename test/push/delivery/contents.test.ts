/** What each device of a chunk is sent: in its language, with its user's values, prepared once for all who share it. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import type { Content } from "../../../src/push/content/content.ts";
import { prepareContent } from "../../../src/push/delivery/prepare-content.ts";
import type { NotificationContent } from "../../../src/push/providers/provider.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import {
  createDeliveryTest,
  type DeliveryTest,
  type RecordingProvider,
  recordingProvider,
} from "./delivery-fixture.ts";

const content: Content = {
  defaultLanguage: "en",
  texts: {
    en: { title: "Hello {{name}}", message: "Welcome" },
    de: { title: "Hallo {{name}}", message: "Willkommen" },
    "zh-Hant": { title: "{{name}}", message: "歡迎" },
  },
  ...{ link: "shop:/offers", badge: 0, silent: false, tooLong: "shorten" },
};

/** A provider that remembers what it has prepared, and for whom. */
function preparing(): RecordingProvider & { prepared: NotificationContent[]; titles: Map<string, string> } {
  const [prepared, titles]: [NotificationContent[], Map<string, string>] = [[], new Map()];
  const provider = recordingProvider();
  return Object.assign(provider, {
    prepared,
    titles,
    prepare(what: NotificationContent) {
      prepared.push(what);
      return async ({ token }: { token: string }) => {
        titles.set(token, what.title);
        return { kind: "sent" as const };
      };
    },
  });
}

test("a content is prepared once for each language, and for each user who has values", () => {
  const provider = preparing();
  const notification = {
    ...{ id: "n", title: "Hello", message: "Welcome", image: "a.png", content, priority: "normal" as const },
    ...{
      collapseId: "offers",
      expiresAt: 1,
      acceptedAt: 0,
      isOneChunk: true,
      keepsOutcomes: false,
      maxPerSecond: null,
    },
  };
  const sendTo = prepareContent(provider, { notification }, "https://images.example.com");
  const device = (userId: string, language: string | null, name?: string) =>
    sendTo({ userId, reader: { language, platform: null, variables: name === undefined ? null : { name } } });
  expect(device("a", "de-Latn-AT")).toBe(device("b", "de-Latn"));
  expect(device("a", null)).toBe(device("b", "zh-Hans-CN"));
  expect(device("a", "zh-Hant-TW")).not.toBe(device("a", null));
  expect(provider.prepared.map(({ title }) => title)).toEqual([
    "Hallo {{name}}",
    "Hello {{name}}",
    "{{name}}",
  ]);
  expect(provider.prepared[0]).toMatchObject({
    ...{ notificationId: "n", expiresAt: 1, link: "shop:/offers", badge: 0 },
    ...{ priority: "normal", collapseId: "offers", imageUrl: undefined },
  });
  expect(device("a", "de-Latn", "Ada")).toBe(device("a", "de-Latn-CH", "Ada"));
  device("b", "de-Latn", "Bo");
  expect(provider.prepared.slice(3).map(({ title }) => title)).toEqual(["Hallo Ada", "Hallo Bo"]);
});

test("what has no content beside its text is prepared as before", () => {
  const provider = preparing();
  const notification = {
    ...{
      id: "n",
      title: "{{name}}",
      message: "Welcome",
      image: "a.png",
      content: null,
      priority: "high" as const,
    },
    ...{
      collapseId: null,
      expiresAt: 1,
      acceptedAt: 0,
      isOneChunk: true,
      keepsOutcomes: false,
      maxPerSecond: null,
    },
  };
  prepareContent(
    provider,
    { notification },
    "https://images.example.com",
  )({
    ...{ userId: "a", reader: null },
  });
  expect(JSON.parse(JSON.stringify(provider.prepared))).toEqual([
    {
      ...{ notificationId: "n", title: "{{name}}", message: "Welcome", expiresAt: 1 },
      imageUrl: "https://images.example.com/a.png",
    },
  ]);
});

describe.each(backends)("delivery on %s", (backend) => {
  let delivery: DeliveryTest;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    delivery = cleanup.adopt(await createDeliveryTest(backend), (one) => one.close());
  });

  test("reads the texts, a device's language and platform, and the values of its user", async () => {
    const provider = preparing();
    const planned = await delivery.plan({ devices: 4, users: 2 });
    const [first = 0, second = 0] = planned.deviceIds;
    await delivery.pause(planned);
    await delivery.db.execute(sql`
      update push.devices set language = case id when ${first}::bigint then 'de-Latn-AT' else 'zh-Hant-TW' end,
        platform = 'ios' where id in (${first}::bigint, ${second}::bigint)`);
    await delivery.db.execute(sql`
      update push.notifications set content = ${JSON.stringify(content)}::jsonb, audience_kind = 'USERS', utc_offsets = null,
        audience = '{}', collapse_id = 'offers' where id = ${planned.notificationId}::uuid`);
    await delivery.db.execute(sql`
      insert into push.notification_users (notification_id, position, user_id, variables)
      values (${planned.notificationId}::uuid, 1, 'user-1', '{"name":"Ada"}'),
        (${planned.notificationId}::uuid, 2, 'user-0', '{"name":"Bo"}')`);
    await delivery.resume(planned);
    delivery.startWorker({ providers: [provider] });
    await delivery.until(planned, ["DONE"]);
    await delivery.stopWorkers();
    const titleOf = (index: number) => provider.titles.get(planned.tokens[index] ?? "");
    expect([0, 1, 2, 3].map(titleOf)).toEqual(["Hallo Ada", "Bo", "Hello Ada", "Hello Bo"]);
    expect(provider.prepared[0]).toMatchObject({ collapseId: "offers", link: "shop:/offers" });
  });
});
