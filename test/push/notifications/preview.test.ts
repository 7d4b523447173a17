/** What a preview says of counted devices: by the text that they are sent, what is left out, and when it would end. */
import { expect, test } from "vitest";
import { plainRequest } from "../../../src/push/notifications/accept-notification.ts";
import { type CountedAudience, previewOf } from "../../../src/push/notifications/preview.ts";
import type { NotificationRequest } from "../../../src/push/notifications/read-notification.ts";

const now = Date.parse("2026-11-21T09:30:00Z");
const text = { title: "t", message: "m" };
const plain = plainRequest({ ...text, image: null }, { everybody: true });
const counted: CountedAudience = {
  ...{ users: undefined, excluded: 3, withoutDevice: 0, isEstimate: true },
  shares: [
    { provider: "fcm", language: "de-Latn-AT", platform: "android", devices: 10 },
    { provider: "fcm", language: "de-Latn", platform: "android", devices: 5 },
    { provider: "fcm", language: null, platform: "web", devices: 2 },
    { provider: "webpush", language: "fr-Latn", platform: "web", devices: 100 },
  ],
};

const preview = (changes: Partial<NotificationRequest>, rate?: number) =>
  previewOf({
    request: { ...plain, ...changes },
    counted,
    ...{ payloads: [], warnings: [], now },
    rateOf: (provider) => (provider === "webpush" ? rate : undefined),
  });

const texts = { en: text, de: text };

test("devices are counted by the text that they are sent", () => {
  const content = { ...plain.content, texts, defaultLanguage: "en" };
  expect(preview({ content })).toMatchObject({
    ...{
      users: null,
      devices: 117,
      isEstimate: true,
      excluded: [{ reason: "EXCEPT", devices: 3 }],
      finishesAt: null,
    },
    breakdown: [
      { provider: "webpush", language: "en", platform: "web", devices: 100 },
      { provider: "fcm", language: "de", platform: "android", devices: 15 },
      { provider: "fcm", language: "en", platform: "web", devices: 2 },
    ],
  });
});

test("a silent notification is not sent to the web, and in no language", () => {
  const shown = preview({ content: { ...plain.content, texts: {}, silent: true } });
  expect(shown.devices).toBe(15);
  expect(shown.excluded).toContainEqual({ reason: "SILENT_WEB", devices: 102 });
  expect(shown.breakdown).toEqual([{ provider: "fcm", language: null, platform: "android", devices: 15 }]);
});

test("it ends when the slowest of the limits lets it", () => {
  expect(preview({}, 10).finishesAt).toBe("2026-11-21T09:30:10.000Z");
  const delivery = { ...plain.delivery, maxPerSecond: 2 };
  expect(preview({ delivery }, 10).finishesAt).toBe("2026-11-21T09:30:58.500Z");
});
