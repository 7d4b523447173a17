/** What fits a payload, by each provider's own count: its fake takes what is said to fit, and nothing that is not. */
import fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { startApnsFake } from "../../../src/development/provider-fakes/apns/apns.ts";
import { startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import { startWebPushFake } from "../../../src/development/provider-fakes/webpush/webpush.ts";
import type { Content } from "../../../src/push/content/content.ts";
import { payloadsOf, tooLarge } from "../../../src/push/providers/payload-sizes.ts";
import type { NotificationContent, PushProvider } from "../../../src/push/providers/provider.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { apnsOf, content, fcmOf, recipient, webPushOf } from "./providers-fixture.ts";

interface Sender {
  readonly provider: PushProvider;
  readonly token: string;
  /** The message of the accepted payload, and its image. */
  shown(): { readonly message: string; readonly image: unknown };
}

const cleanup = suiteCleanup();
const senders: Record<string, Sender> = {};
beforeAll(async () => {
  const fcmFake = cleanup.adopt(await startFcmFake(), (fake) => fake.close());
  const apnsFake = cleanup.adopt(await startApnsFake(), (fake) => fake.close());
  const webPushFake = cleanup.adopt(await startWebPushFake(), (fake) => fake.close());
  const [fcm, apns, webPush] = [fcmOf(fcmFake), apnsOf(apnsFake), webPushOf(webPushFake)];
  for (const provider of [fcm, apns, webPush]) cleanup.defer(() => provider.close());
  const lastOf = (fake: typeof fcmFake | typeof apnsFake | typeof webPushFake) => {
    const payload = fake.ledger.recent().at(-1)?.payload;
    return JSON.parse(typeof payload === "string" ? payload : JSON.stringify(payload));
  };
  senders["FCM"] = {
    ...{ provider: fcm, token: "device" },
    shown: () => ({ message: lastOf(fcmFake).notification.body, image: lastOf(fcmFake).notification.image }),
  };
  senders["APNs"] = {
    ...{ provider: apns, token: "ab".repeat(32) },
    shown: () => ({ message: lastOf(apnsFake).aps.alert.body, image: lastOf(apnsFake).imageUrl }),
  };
  senders["Web Push"] = {
    ...{ provider: webPush, token: JSON.stringify(webPushFake.subscribe()) },
    shown: () => ({ message: lastOf(webPushFake).body, image: lastOf(webPushFake).image }),
  };
});

const graphemes = (text: string) =>
  [...new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text)].map(({ segment }) => segment);

const anyContent = fc.record({
  title: fc.string({ unit: "grapheme", minLength: 1, maxLength: 100 }),
  message: fc
    .tuple(fc.constantFrom("я", '"', "👩‍👩‍👧", "a", "नि", "e\u0301"), fc.integer({ min: 1, max: 4000 }))
    .map(([unit, bytes]) => unit.repeat(Math.ceil(bytes / Buffer.byteLength(unit)))),
  imageUrl: fc.option(
    fc.nat(1000).map((n) => `https://i.example.com/${"i".repeat(n)}`),
    { nil: undefined },
  ),
  link: fc.option(
    fc.nat(2000).map((n) => `https://example.com/${"l".repeat(n)}`),
    { nil: undefined },
  ),
  data: fc.option(
    fc.nat(4000).map((n) => ({ key: "ü".repeat(n / 2) })),
    { nil: undefined },
  ),
  sound: fc.option(
    fc.nat(255).map((n) => "s".repeat(n + 1)),
    { nil: undefined },
  ),
  thread: fc.option(
    fc.nat(255).map((n) => "t".repeat(n + 1)),
    { nil: undefined },
  ),
});

describe.each(["FCM", "APNs", "Web Push"])("%s", (name) => {
  const sender = (): Sender => senders[name] ?? expect.fail("no such provider");
  const send = (what: NotificationContent) => {
    const { provider, token } = sender();
    return provider.prepare(what)(recipient(token));
  };
  const sizeOf = (what: NotificationContent) => sender().provider.payloadSize?.(what);

  test("is sent the text whole, or cut between characters and never empty, and its image if there is room", async () => {
    await fc.assert(
      fc.asyncProperty(anyContent, async (changes) => {
        const what = content(changes);
        const { bytes = 0, limit = 0, isShortened, fits } = sizeOf(what) ?? {};
        expect(isShortened).toBe(bytes > limit);
        if (!fits) return;
        expect(await send(what)).toEqual({ kind: "sent" });
        const { message, image } = sender().shown();
        if (!isShortened) expect([message, image]).toEqual([what.message, what.imageUrl]);
        else expect(image).toBeUndefined();
        if (message === what.message) return;
        const kept = graphemes(message.slice(0, -1));
        expect(message.endsWith("…") && kept.length > 0).toBe(true);
        expect(kept).toEqual(graphemes(what.message).slice(0, kept.length));
      }),
      { numRuns: 60 },
    );
  });

  test("takes exactly as many bytes as are said to be left", async () => {
    const room = ({ bytes = 0, limit = 0 } = {}) => limit - bytes;
    const what = content({ message: "m", imageUrl: undefined, link: "https://example.com/1", sound: "s" });
    const fills = { ...what, message: "m".repeat(1 + room(sizeOf(what))) };
    expect(sizeOf(fills)).toMatchObject({ isShortened: false, fits: true });
    expect(await send(fills)).toEqual({ kind: "sent" });
    expect(sender().shown().message).toBe(fills.message);
    const over = { ...what, message: `${fills.message}m` };
    expect(sizeOf(over)).toMatchObject({ isShortened: true, fits: true });
  });

  test("keeps one character, and says that it does not fit if that is too much", () => {
    const what = content({ title: "t", message: "👩‍👩‍👧👩‍👩‍👧", imageUrl: undefined, data: { key: "" } });
    const { limit = 0, bytes = 0 } = sizeOf(what) ?? {};
    const keyOf = (length: number) => ({ ...what, data: { key: "k".repeat(limit - bytes + length) } });
    const emoji = Buffer.byteLength("👩‍👩‍👧");
    expect(sizeOf(keyOf(emoji - 3))).toMatchObject({ isShortened: true, fits: true });
    expect(sizeOf(keyOf(emoji - 2))).toMatchObject({ isShortened: true, fits: false });
    const endless = { ...keyOf(-300), message: `a${"\u0301".repeat(500)}` };
    expect(sizeOf(endless)).toMatchObject({ isShortened: true, fits: true });
  });
});

describe("the payloads of a notification", () => {
  const base: Content = {
    defaultLanguage: "en",
    texts: { en: { title: "Hi", message: "Hello {{name}}" }, ru: { title: "Hi", message: "я".repeat(1990) } },
    ...{ silent: false, tooLong: "shorten" },
  };
  const measure = (changes: Partial<Content>, longest?: Record<string, string>) => {
    const measured = {
      content: { ...base, ...changes },
      priority: "high" as const,
      longest,
      imageBaseUrl: undefined,
    };
    const providers = Object.values(senders).map(({ provider }) => provider);
    return payloadsOf({ ...measured, expiresAt: Date.now() + 3_600_000 }, providers);
  };

  test("are one for each provider and language, with the longest values", () => {
    const found = measure({}, { name: "x".repeat(1000) });
    expect(found.map(({ provider, language }) => `${provider} ${language}`)).toEqual([
      ...["fcm en", "fcm ru", "apns en", "apns ru", "webpush en", "webpush ru"],
    ]);
    expect((found[0]?.bytes ?? 0) - (measure({}, { name: "" })[0]?.bytes ?? 0)).toBe(1000);
    expect(found.map(({ isShortened }) => isShortened)).toEqual([false, true, false, false, false, true]);
  });

  test("are refused if they are, at the worst of each language", () => {
    expect(tooLarge(measure({}), "shorten")).toEqual([]);
    expect(tooLarge(measure({}), "refuse")).toEqual([
      {
        language: "ru",
        fits: true,
        message: expect.stringMatching(/^makes a payload of \d+ bytes for fcm, which takes 4096; shorten it/),
      },
    ]);
  });

  test("are too large by their data, in silent ones too", () => {
    const data = { key: "k".repeat(4090) };
    const message = expect.stringContaining("shorten data, link or title");
    const problem = (language: string | null) => ({ language, fits: false, message });
    expect(tooLarge(measure({ data }), "shorten")).toEqual([problem("ru"), problem("en")]);
    expect(tooLarge(measure({ data, texts: {}, silent: true }), "shorten")).toEqual([problem(null)]);
    expect(measure({ texts: {}, silent: true }).map(({ provider }) => provider)).toEqual(["fcm", "apns"]);
  });
});
