/** What goes to a device beside the text, at each provider, as its fake has accepted it. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { type ApnsFake, startApnsFake } from "../../../src/development/provider-fakes/apns/apns.ts";
import { type FcmFake, startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import {
  startWebPushFake,
  type WebPushFake,
} from "../../../src/development/provider-fakes/webpush/webpush.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import type { ApnsProvider } from "../../../src/push/providers/apns/apns.ts";
import type { FcmProvider } from "../../../src/push/providers/fcm/fcm.ts";
import { OutboxProvider } from "../../../src/push/providers/outbox/outbox.ts";
import type { NotificationContent } from "../../../src/push/providers/provider.ts";
import type { WebPushProvider } from "../../../src/push/providers/webpush/webpush.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { apnsOf, content, fcmOf, recipient, webPushOf } from "./providers-fixture.ts";

let fcmFake: FcmFake;
let apnsFake: ApnsFake;
let webPushFake: WebPushFake;
let fcm: FcmProvider;
let apns: ApnsProvider;
let webPush: WebPushProvider;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fcmFake = cleanup.adopt(await startFcmFake(), (fake) => fake.close());
  apnsFake = cleanup.adopt(await startApnsFake(), (fake) => fake.close());
  webPushFake = cleanup.adopt(await startWebPushFake(), (fake) => fake.close());
  fcm = cleanup.adopt(fcmOf(fcmFake), (provider) => provider.close());
  apns = cleanup.adopt(apnsOf(apnsFake), (provider) => provider.close());
  webPush = cleanup.adopt(webPushOf(webPushFake), (provider) => provider.close());
});
afterEach(() => {
  for (const fake of [fcmFake, apnsFake, webPushFake]) fake.clear();
});

const sent = { kind: "sent" };
const notSent = { kind: "failed", isUnasked: true, reason: "a silent message is not for browsers" };
const device = "ab".repeat(32);
const last = (fake: FcmFake | ApnsFake | WebPushFake) => fake.ledger.recent().at(-1);

const extras = {
  link: "https://example.com/orders/1",
  data: { order: "1" },
  sound: "ping.caf",
  badge: 3,
  channel: "orders",
  category: "ORDER",
  thread: "order-1",
  interruptionLevel: "time-sensitive",
  collapseId: "order-1",
  priority: "normal",
} as const satisfies Partial<NotificationContent>;
const data = { link: extras.link, order: "1" };
const aps = {
  ...{ sound: "ping.caf", badge: 3, category: "ORDER", "thread-id": "order-1" },
  "interruption-level": "time-sensitive",
};

describe("everything that a notification may have", () => {
  const what = content({ ...extras, imageUrl: undefined });
  const { title, message } = what;

  test("is in a message of FCM, for each platform", async () => {
    const to = recipient("device");
    expect(await fcm.prepare(what)(to)).toEqual(sent);
    expect(last(fcmFake)?.payload).toEqual({
      token: "device",
      data: { notificationId: what.notificationId, messageId: to.messageId, ...data },
      notification: { title, body: message },
      android: {
        ...{ ttl: "3600s", priority: "normal" },
        notification: { tag: "order-1", sound: "ping.caf", notification_count: 3, channel_id: "orders" },
      },
      apns: {
        headers: {
          ...{ "apns-collapse-id": "order-1", "apns-priority": "5" },
          "apns-expiration": String(Math.floor(what.expiresAt / 1000)),
        },
        payload: { aps },
      },
      webpush: {
        headers: { TTL: "3600", Urgency: "normal" },
        notification: { tag: "order-1" },
        fcm_options: { link: extras.link },
      },
    });
  });

  test("is in a message of APNs", async () => {
    expect(await apns.prepare(what)(recipient(device))).toEqual(sent);
    expect(last(apnsFake)).toMatchObject({ collapseId: "order-1" });
    expect(last(apnsFake)?.payload).toEqual({
      aps: { alert: { title, body: message }, ...aps },
      notificationId: what.notificationId,
      data,
    });
  });

  test("is in a message of Web Push, as far as browsers know it", async () => {
    const to = recipient(JSON.stringify(webPushFake.subscribe()));
    expect(await webPush.prepare(what)(to)).toEqual(sent);
    expect(JSON.parse(String(last(webPushFake)?.payload))).toEqual({
      ...{ messageId: to.messageId, notificationId: what.notificationId, tag: "order-1" },
      ...{ title, body: message, data },
    });
  });

  test("is in a line of the outbox provider", async () => {
    const directory = await mkdtemp(join(tmpdir(), "outbox-"));
    cleanup.defer(() => rm(directory, { recursive: true }));
    const outbox = new OutboxProvider(join(directory, "outbox.ndjson"), systemClock);
    await outbox.prepare(what)(recipient("token"));
    await outbox.close();
    const { link: _, ...others } = extras;
    expect(JSON.parse(await readFile(join(directory, "outbox.ndjson"), "utf8"))).toMatchObject({
      ...others,
      data,
    });
  });
});

describe("members that a platform takes otherwise", () => {
  const fcmPayload = async (changes: Partial<NotificationContent>) => {
    expect(await fcm.prepare(content(changes))(recipient("device"))).toEqual(sent);
    return last(fcmFake)?.payload;
  };

  test("a badge of 0 is none for Android, where it would mean one more", async () => {
    const payload = await fcmPayload({ badge: 0 });
    expect(payload).toMatchObject({ apns: { payload: { aps: { badge: 0 } } } });
    expect(payload).not.toHaveProperty("android.notification.notification_count");
  });

  test("a link with an app's scheme is for the app alone", async () => {
    const payload = await fcmPayload({ link: "shop:/orders/1" });
    expect(payload).toMatchObject({ data: { link: "shop:/orders/1" } });
    expect(payload).not.toHaveProperty("webpush.fcm_options");
  });

  test.each(["order 1", "заказ", "a\r\nb: c", "x".repeat(65)])(
    "a collapse id that no header can have is the same for APNs each time: %j",
    async (collapseId) => {
      const accepted = [content({ collapseId }), content({ collapseId })].map(async (what) => {
        expect(await apns.prepare(what)(recipient(device))).toEqual(sent);
      });
      await Promise.all(accepted);
      const [first, second] = apnsFake.ledger.recent();
      expect(first?.collapseId).toMatch(/^[\w-]{43}$/);
      expect(second?.collapseId).toBe(first?.collapseId);
      expect(await fcmPayload({ collapseId })).toMatchObject({
        android: { notification: { tag: collapseId } },
        apns: { headers: { "apns-collapse-id": first?.collapseId } },
      });
    },
  );

  test("the sound of a critical alert says that it is one", async () => {
    const payload = await fcmPayload({ interruptionLevel: "critical", sound: "alarm.caf" });
    const sound = { critical: 1, name: "alarm.caf" };
    expect(payload).toMatchObject({ apns: { payload: { aps: { sound } } } });
    expect(payload).toMatchObject({ android: { notification: { sound: "alarm.caf" } } });
  });
});

describe("a silent notification", () => {
  const what = content({
    ...{ title: "", message: "", imageUrl: undefined },
    data: { sync: "1" },
    silent: true,
  });

  test("is data alone for FCM, and wakes Apple's devices in the background", async () => {
    const to = recipient("device");
    expect(await fcm.prepare({ ...what, badge: 3 })(to)).toEqual(sent);
    expect(last(fcmFake)?.payload).toEqual({
      token: "device",
      data: { notificationId: what.notificationId, messageId: to.messageId, sync: "1" },
      android: { ttl: "3600s", priority: "high" },
      apns: {
        headers: {
          ...{
            "apns-collapse-id": what.notificationId,
            "apns-push-type": "background",
            "apns-priority": "5",
          },
          "apns-expiration": String(Math.floor(what.expiresAt / 1000)),
        },
        payload: { aps: { "content-available": 1 } },
      },
      webpush: { headers: { TTL: "3600" } },
    });
  });

  test("goes to APNs in the background, between others that do not", async () => {
    expect(await apns.prepare(content())(recipient(device))).toEqual(sent);
    expect(await apns.prepare({ ...what, badge: 3 })(recipient(device))).toEqual(sent);
    expect(last(apnsFake)?.payload).toEqual({
      aps: { "content-available": 1 },
      ...{ notificationId: what.notificationId, data: { sync: "1" } },
    });
    expect(await apns.prepare(content())(recipient(device))).toEqual(sent);
  });

  test("is not sent to browsers, by Web Push or FCM", async () => {
    const to = recipient(JSON.stringify(webPushFake.subscribe()));
    expect(await webPush.prepare(what)(to)).toEqual(notSent);
    expect(await fcm.prepare(what)({ ...recipient("device"), platform: "web" })).toEqual(notSent);
    expect(await fcm.prepare(what)({ ...recipient("device"), platform: "android" })).toEqual(sent);
    expect(webPush.payloadSize(what)).toBeUndefined();
  });
});
