/** What a device is shown, whatever a notification has: its text, and an image that there is room for. */
import { beforeAll, describe, expect, test } from "vitest";
import { startApnsFake } from "../../../src/development/provider-fakes/apns/apns.ts";
import { startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import { startWebPushFake } from "../../../src/development/provider-fakes/webpush/webpush.ts";
import { imageUrl } from "../../../src/push/providers/content.ts";
import type { NotificationContent } from "../../../src/push/providers/provider.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { apnsOf, content, fcmOf, recipient, webPushOf } from "./providers-fixture.ts";

interface Shown {
  readonly text: string;
  readonly image: string | undefined;
}
type Show = (what: NotificationContent) => Promise<Shown>;

const cleanup = suiteCleanup();
const show: Record<string, Show> = {};
beforeAll(async () => {
  const fcmFake = cleanup.adopt(await startFcmFake(), (fake) => fake.close());
  const apnsFake = cleanup.adopt(await startApnsFake(), (fake) => fake.close());
  const webPushFake = cleanup.adopt(await startWebPushFake(), (fake) => fake.close());
  const [fcm, apns, webPush] = [fcmOf(fcmFake), apnsOf(apnsFake), webPushOf(webPushFake)];
  for (const provider of [fcm, apns, webPush]) cleanup.defer(() => provider.close());
  show["FCM"] = async (what) => {
    expect(await fcm.prepare(what)(recipient("device-1"))).toEqual({ kind: "sent" });
    const payload = JSON.parse(JSON.stringify(fcmFake.ledger.recent().at(-1)?.payload));
    expect(Buffer.byteLength(JSON.stringify({ message: { ...payload, token: "" } }))).toBeLessThanOrEqual(
      4096,
    );
    return { text: payload.notification.body, image: payload.notification.image };
  };
  show["APNs"] = async (what) => {
    expect(await apns.prepare(what)(recipient("ab".repeat(32)))).toEqual({ kind: "sent" });
    const payload = JSON.parse(JSON.stringify(apnsFake.ledger.recent().at(-1)?.payload));
    return { text: payload.aps.alert.body, image: payload.imageUrl };
  };
  show["Web Push"] = async (what) => {
    const to = recipient(JSON.stringify(webPushFake.subscribe()));
    expect(await webPush.prepare(what)(to)).toEqual({ kind: "sent" });
    const payload = JSON.parse(String(webPushFake.ledger.recent().at(-1)?.payload));
    return { text: payload.body, image: payload.image };
  };
});

/** The URL of an image, below the longest base, whose name is of so many bytes. */
const imageOf = (bytes: number) => imageUrl(`https://${"i".repeat(492)}`, "i".repeat(bytes));

describe.each(["FCM", "APNs", "Web Push"])("by %s", (provider) => {
  const shown: Show = (what) => show[provider]?.(what) ?? Promise.reject(new Error("no such provider"));

  test("an image with a long name takes nothing of a text", async () => {
    for (const [bytes, letters] of [
      [1000, 500],
      [427, 1000],
    ] as const) {
      const what = content({ imageUrl: imageOf(bytes), message: "я".repeat(letters) });
      expect(await shown(what)).toEqual({ text: what.message, image: what.imageUrl });
    }
  });

  test("the longest image comes with the longest title and a text", async () => {
    const what = content({ title: "\u0001".repeat(256), imageUrl: imageOf(1000), message: "я".repeat(250) });
    expect(await shown(what)).toEqual({ text: what.message, image: what.imageUrl });
  });

  test("an image for which a text leaves no room is left out", async () => {
    const what = content({ imageUrl: imageOf(1000), message: "я".repeat(1500) });
    expect(await shown(what)).toEqual({ text: what.message, image: undefined });
  });

  test.each([
    ["of Cyrillic letters", "я".repeat(2000)],
    ["of control characters", "\u0001".repeat(4000)],
    ["of one grapheme", `a${"\u0301".repeat(1999)}`],
    ["of emoji", "😀".repeat(1000)],
  ])("a text %s that is too long is shown as far as there is room", async (_, message) => {
    const { text, image } = await shown(content({ title: "\u0001".repeat(256), message }));
    expect(message.startsWith(text.slice(0, -1)) && text.endsWith("…")).toBe(true);
    expect(Buffer.byteLength(JSON.stringify(text))).toBeGreaterThan(1900);
    expect(text.isWellFormed()).toBe(true);
    expect(image).toBeUndefined();
  });
});
