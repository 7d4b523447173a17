/** Acceptance of notifications to anyone: what is stored of users, filters and texts, and that a key sends once. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { WrittenNotification } from "../../../src/push/notifications/read-notification.ts";
import { createSending, type Sending } from "../../../src/push/notifications/sending.ts";
import type { ProviderName } from "../../../src/push/provider-settings.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, ttlSeconds } from "./notification-lab.ts";

const en = { title: "Hello", message: "How are you?" };
const de = { title: "Hallo", message: "Wie geht es dir?" };
const toUser: WrittenNotification = { audience: { users: ["u-1"] }, content: { texts: { en } } };
const reused = { kind: { code: "idempotency_key_reused", status: 409 } };

describe.each(backends)("accepting notifications to anyone on %s", (backend) => {
  let lab: Lab;
  let sending: Sending;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
    sending = sendingWith({});
  });
  beforeEach(() => lab.clear());

  function sendingWith(own: { readonly providers?: readonly ProviderName[] }): Sending {
    const { db, wakeUps, clock } = lab;
    return createSending({
      ...{ db, wakeUps, clock, ttlSeconds, imageBaseUrl: undefined, ...own },
      payloadsOf: ({ content }) =>
        Object.entries(content.texts).map(([language, { message }]) => ({
          ...{ provider: "fcm", language, bytes: message.length, limit: 100, fits: true },
          isShortened: message.length > 100,
        })),
      count: () => Promise.reject(new Error("nothing is counted")),
      rates: () => Promise.reject(new Error("no rate is read")),
      recipients: () => Promise.reject(new Error("nothing is listed")),
    });
  }

  const create = (written: Partial<WrittenNotification> = {}, key?: string) =>
    sending.create("backoffice", { ...toUser, ...written }, key);
  const stored = async (id: string) => {
    const [row] = await rows(
      lab.db,
      sql`
        select title, message, image, content, audience_kind, utc_offsets, audience, last_device_id is not null as names,
          priority, collapse_id, max_per_second, history, extract(epoch from expires_at - accepted_at)::int as ttl
        from push.notifications where id = ${id}::uuid`,
    );
    return row;
  };
  const users = (id: string) =>
    rows(
      lab.db,
      sql`select position, user_id as user, is_excluded as out, variables from push.notification_users
        where notification_id = ${id}::uuid order by position`,
    );
  const ranges = (id: string) =>
    rows(
      lab.db,
      sql`select axis, after_id::int as after, through_id::int as through, range_number as number from push.plan_ranges
        where notification_id = ${id}::uuid order by axis, after_id`,
    );
  const accepted = () => lab.events("push.notification.accepted.v1");

  test("warns of an image that no device can fetch", async () => {
    const content = { ...toUser.content, image: "a.png" };
    const noImages = {
      pointer: "/body/content/image",
      message: expect.stringContaining("PUSH_IMAGE_BASE_URL"),
    };
    expect((await create({ content })).warnings).toEqual([noImages]);
  });

  test("named users are rows and ranges of 500, those who are excluded the last, and in no event", async () => {
    const ids = Array.from({ length: 1_001 }, (_, index) => `u-${index}`);
    const { id, warnings } = await create({ audience: { users: ids, exceptUsers: ["u-7", "x"] } });
    expect(warnings).toEqual([]);
    expect(await stored(id)).toMatchObject({ audience_kind: "USERS", utc_offsets: null, names: true });
    const named = await users(id);
    expect(named).toHaveLength(1_002);
    expect(named.slice(-3)).toEqual([
      { position: 1_000, user: "u-1000", out: false, variables: null },
      { position: 1_001, user: "u-7", out: true, variables: null },
      { position: 1_002, user: "x", out: true, variables: null },
    ]);
    expect(await ranges(id)).toEqual([
      { axis: "USERS", after: 0, through: 500, number: 0 },
      { axis: "USERS", after: 500, through: 1_000, number: 1 },
    ]);
    expect(await accepted()).toEqual([
      {
        ...{ notificationId: id, clientId: "backoffice", utcOffsets: [], test: false },
        ...{ audience: "AUDIENCE_KIND_USERS", users: 1_000, filters: 0 },
      },
    ]);
  });

  test("variables are with their users", async () => {
    const personal = [
      { user: 'a"b', variables: { name: 'A"\\d{a}' } },
      { user: "c", variables: { name: "" } },
    ];
    const { id } = await create({
      audience: { personal },
      content: { texts: { en: { ...en, title: "{{name}}" } } },
    });
    expect(await users(id)).toEqual(
      personal.map(({ user, variables }, index) => ({ position: index + 1, user, out: false, variables })),
    );
  });

  test("filters and everybody have a range of all devices, beside those of named users", async () => {
    const filter = { languages: ["DE"], utcOffsets: [1], platforms: ["ios"] } as const;
    const { id } = await create({
      audience: { anyOf: [filter], except: [{ platforms: ["web"] }], users: ["u-1"] },
      content: {
        texts: { de, en },
        defaultLanguage: "en",
        link: "myapp://a",
        data: { a: "b" },
        image: "a.png",
      },
      delivery: { priority: "normal", ttlSeconds: 60, collapseId: "c", maxPerSecond: 7, history: false },
    });
    const read = { languages: ["de"], utcOffsets: [60], platforms: ["ios"] };
    expect(await stored(id)).toMatchObject({
      ...{ title: "Hello", message: "How are you?", image: "a.png", audience_kind: "FILTERS" },
      audience: { anyOf: [read], except: [{ platforms: ["web"] }], everybody: false, users: 1 },
      content: { texts: { de, en }, defaultLanguage: "en", link: "myapp://a", data: { a: "b" } },
      ...{ priority: "normal", collapse_id: "c", max_per_second: 7, history: false, ttl: 60 },
    });
    expect(await ranges(id)).toEqual([
      { axis: "DEVICES", after: 0, through: null, number: 0 },
      { axis: "USERS", after: 0, through: 1, number: 0 },
    ]);
    const everybody = await create({ audience: { everybody: true } });
    expect(await stored(everybody.id)).toMatchObject({
      audience_kind: "EVERYBODY",
      names: false,
      ttl: ttlSeconds,
    });
    expect(
      (await accepted()).map(({ audience, users: named, filters }) => [audience, named, filters]),
    ).toEqual([
      ["AUDIENCE_KIND_FILTERS", 1, 1],
      ["AUDIENCE_KIND_EVERYBODY", 0, 0],
    ]);
  });

  test("a silent one has no text and no history", async () => {
    const { id } = await create({ content: { silent: true, data: { a: "b" } } });
    expect(await stored(id)).toMatchObject({
      title: "",
      message: "",
      history: false,
      content: { silent: true },
    });
  });

  test("a text that is too long is shortened with a warning, or refused, at its own tag", async () => {
    const texts = { DE_at: { title: "t", message: "m".repeat(101) }, en };
    const content = { texts, defaultLanguage: "en" };
    expect((await create({ content })).warnings).toMatchObject([{ pointer: "/body/content/texts/DE_at" }]);
    await lab.clear();
    await expect(create({ content: { ...content, tooLong: "refuse" } })).rejects.toMatchObject({
      errors: [{ pointer: "/body/content/texts/DE_at" }],
    });
    expect(await accepted()).toEqual([]);
  });

  test("50 parallel calls with one key are one notification, and all get the same", async () => {
    const both = { audience: { users: ["b", "a"] } };
    const all = await Promise.all(Array.from({ length: 50 }, () => create(both, "same")));
    expect(new Set(all.map((one) => JSON.stringify(one))).size).toBe(1);
    expect(await accepted()).toHaveLength(1);
    // The order of ids and of members, and members that say what is so anyway, make no other request.
    const again = await create(
      { delivery: { priority: "high" }, audience: { users: ["a", "b", "a"] } },
      "same",
    );
    expect(again).toEqual(all[0]);
    await expect(create({ audience: { users: ["a"] } }, "same")).rejects.toMatchObject(reused);
    await expect(create({ ...both, content: { texts: { de } } }, "same")).rejects.toMatchObject(reused);
  });

  test("so they are where a notification is planned as it is accepted", async () => {
    await lab.addDevices([{ userId: "u-1" }, { userId: "u-1" }]);
    const atOnce = sendingWith({ providers: ["outbox"] });
    const all = await Promise.all(
      Array.from({ length: 50 }, () => atOnce.create("backoffice", toUser, "same")),
    );
    expect(new Set(all.map(({ id }) => id)).size).toBe(1);
    expect(await accepted()).toHaveLength(1);
    expect(await lab.chunks(all[0]?.id ?? "")).toMatchObject([{ provider: "outbox", planned: 2 }]);
  });

  test("a key that /push was called with is another request here", async () => {
    const send = { title: "t", message: "m", image: null, utcOffsets: [60] };
    await lab.notifications.accept("backoffice", send, "key");
    const same = {
      audience: { anyOf: [{ utcOffsets: [1] }] },
      content: { texts: { en: { title: "t", message: "m" } } },
    };
    await expect(create(same, "key")).rejects.toMatchObject(reused);
  });
});
