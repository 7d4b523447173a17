/** One server, three providers: each device gets its message by its own, and what a provider says has its effect. */
import { createHash, randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, beforeEach, describe, expect, it } from "vitest";
import {
  type ProviderFakes,
  startProviderFakes,
} from "../../../src/development/provider-fakes/provider-fakes.ts";
import type { RunningFake } from "../../../src/development/provider-fakes/running-fake.ts";
import { type PushProcess, spawnPushServer } from "../../support/push-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Operator, operatorOf, type Progress, until } from "./operator.ts";

type Provider = "fcm" | "apns" | "webpush";
type Fake = Pick<RunningFake, "ledger" | "stopPlaying">;

function settingsOf({ fcm, apns, webpush }: ProviderFakes): Record<string, string> {
  return {
    PUSH_PROVIDERS: "fcm,apns,webpush",
    PUSH_IMAGE_BASE_URL: "http://127.0.0.1/images",
    FCM_ENDPOINT: fcm.origin,
    FCM_CREDENTIALS: JSON.stringify(fcm.credentials),
    APNS_ENDPOINT: apns.origin,
    APNS_KEY: apns.credentials.privateKey,
    APNS_KEY_ID: apns.credentials.keyId,
    APNS_TEAM_ID: apns.credentials.teamId,
    APNS_TOPIC: apns.credentials.topic,
    WEBPUSH_VAPID_PUBLIC_KEY: webpush.credentials.publicKey,
    WEBPUSH_VAPID_PRIVATE_KEY: webpush.credentials.privateKey,
    WEBPUSH_SUBJECT: webpush.credentials.subject,
    WEBPUSH_ALLOWED_HOSTS: webpush.origin,
  };
}

/** A device token as Apple has them. @param prefix hexadecimal */
function appleToken(prefix = "a"): string {
  return (prefix + createHash("sha256").update(randomUUID()).digest("hex")).slice(0, 64);
}

describe.each(backends)("on %s", (backend) => {
  const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  let fakes: ProviderFakes;
  let server: PushProcess;
  let operator: Operator;
  let user: string;
  /** An offset for each test, so that the devices of others are out of the way. */
  let offset = -720;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
    fakes = await startProviderFakes();
    cleanup.defer(() => fakes.close());
    const env = { ...settingsOf(fakes), DATA_DIR: dataDir, PUSH_REMOVAL_DELAY_SECONDS: "0" };
    server = await spawnPushServer(backend, { env });
    cleanup.defer(() => server.stop());
    operator = await operatorOf(server);
    user = `Bearer ${await server.userToken()}`;
  });
  beforeEach(() => {
    offset += 60;
    for (const { ledger, stopPlaying } of all()) {
      stopPlaying();
      ledger.clear();
    }
  });

  const all = (): Fake[] => [fakes.fcm, fakes.apns, fakes.webpush];

  async function save(
    provider: Provider | undefined,
    token: string,
    at = offset,
    as = user,
    language?: string,
  ): Promise<void> {
    const { status, text } = await operator.call("savePushToken", {
      as,
      json: {
        token,
        expiration: new Date(Date.now() + 86_400_000).toISOString(),
        ...(provider && { provider }),
        ...(language !== undefined && { language }),
      },
      headers: { "barrier-user-utc-offset": String(at) },
    });
    expect(status, text).toBe(204);
  }

  async function send(utcOffsets = [offset], fields = {}): Promise<Progress> {
    return operator.ended(await operator.send({ utcOffsets, ...fields }));
  }

  /** What was sent, by provider. */
  const sentBy = ({ breakdown }: Progress) =>
    Object.fromEntries(breakdown.map(({ provider, sent }) => [provider, sent]));

  it("each device gets the message by the provider that it was registered with", async () => {
    const fcm = ["fcm-1", "fcm-2"];
    const apns = [appleToken(), appleToken(), appleToken()];
    const browsers = ["tab-1", "tab-2", "tab-3", "tab-4"].map((name) => fakes.webpush.subscribe(name));
    // The first provider is the default.
    for (const token of fcm) await save(undefined, token);
    for (const token of apns) await save("apns", token);
    for (const subscription of browsers) await save("webpush", JSON.stringify(subscription));
    const content = { title: "Grüße 👋", message: 'Sagt "hallo"\nzu allen', image: "sommer/1.jpg" };
    const progress = await send([offset], content);
    const { id } = progress;
    expect(progress).toMatchObject({ state: "COMPLETED", recipients: 1, planned: 9, sent: 9 });
    expect(sentBy(progress)).toEqual({ fcm: 2, apns: 3, webpush: 4 });

    const tokens = ({ ledger }: Fake) => new Set(ledger.tokens().map(({ token }) => token));
    const ends = browsers.map(({ endpoint }) => endpoint.slice(endpoint.lastIndexOf("/") + 1));
    expect(all().map(tokens)).toEqual([new Set(fcm), new Set(apns), new Set(ends)]);
    // The fakes take the collapse id where each provider has it: Android's tag, apns-collapse-id, the web's tag.
    const messages = all().flatMap(({ ledger }) => ledger.recent());
    expect(new Set(messages.map(({ collapseId }) => collapseId))).toEqual(new Set([id]));
    expect(new Set(messages.map(({ messageId }) => messageId)).size).toBe(9);

    const { title, message: body } = content;
    const image = "http://127.0.0.1/images/sommer/1.jpg";
    for (const { payload } of fakes.fcm.ledger.recent()) {
      expect(payload).toMatchObject({
        notification: { title, body, image },
        android: { notification: { tag: id } },
        data: { notificationId: id },
      });
    }
    for (const { payload } of fakes.apns.ledger.recent()) {
      expect(payload).toMatchObject({ aps: { alert: { title, body } }, notificationId: id, imageUrl: image });
    }
    // The browser's keys have decrypted it.
    for (const { payload } of fakes.webpush.ledger.recent()) {
      expect(JSON.parse(String(payload))).toMatchObject({ title, tag: id });
      expect(String(payload)).toContain(image);
    }
  });

  describe("texts that are too long", () => {
    const family = "👩‍👩‍👧‍👦";
    const fill = (unit: string, bytes: number) => unit.repeat(Math.floor(bytes / Buffer.byteLength(unit)));
    const long = {
      hi: { title: fill("नमस्ते ", 700), message: fill("क्या हाल है? स्त्री क्षत्रिय ", 4_000) },
      en: { title: "👋🏽".repeat(60), message: fill(family, 4_000) },
      zh: { title: fill("你好", 700), message: fill("天气真好，我们去公园吧。", 4_000) },
    };
    const texts = { ...long, de: { title: "Hallo", message: "Kurz." } };
    const graphemes = (text: string) =>
      [...new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text)].map(
        ({ segment }) => segment,
      );
    const shown = {
      fcm: (payload: unknown) => Object(payload).notification,
      apns: (payload: unknown) => Object(payload).aps.alert,
      webpush: (payload: unknown) => JSON.parse(String(payload)),
    };
    let own: string;

    beforeAll(async () => {
      const id = randomUUID();
      own = id;
      const as = `Bearer ${await server.userToken(id)}`;
      for (const language of Object.keys(texts)) {
        await save("fcm", `fcm-${language}`, 0, as, language);
        await save("apns", appleToken(), 0, as, language);
        await save("webpush", JSON.stringify(fakes.webpush.subscribe(`tab-${language}`)), 0, as, language);
      }
    });

    const create = async (content: object) =>
      operator.call("createNotification", {
        as: operator.as,
        json: { audience: { users: [own] }, content: { defaultLanguage: "en", ...content } },
      });
    const bodyOf = ({ text }: { readonly text: string }) => JSON.parse(text);
    /** The messages at each provider, after all were taken. */
    async function arrived(content: object) {
      const response = await create(content);
      expect(response.status, response.text).toBe(201);
      const { id, warnings } = bodyOf(response);
      expect(await operator.ended(id)).toMatchObject({ planned: 12, sent: 12 });
      const found = ([name, show]: [Provider, (payload: unknown) => unknown]) =>
        fakes[name].ledger
          .recent()
          .map(({ payload }) => ({ provider: name, payload, ...Object(show(payload)) }));
      return {
        warnings,
        messages: (["fcm", "apns", "webpush"] as const).flatMap((name) => found([name, shown[name]])),
      };
    }

    it("are whole, or cut between characters, and each provider takes them", async () => {
      const { warnings, messages } = await arrived({ texts });
      const pointers = new Set(warnings.map(({ pointer }: { pointer: string }) => pointer));
      expect([...pointers].toSorted()).toEqual(["en", "hi", "zh"].map((tag) => `/body/content/texts/${tag}`));
      expect(messages).toHaveLength(12);
      for (const { provider, payload, title, body } of messages) {
        const [, text] = Object.entries(texts).find(([, one]) => one.title === title) ?? [];
        if (text === undefined) expect.fail(`${provider} was sent ${title}`);
        if (provider === "apns")
          expect(Buffer.byteLength(JSON.stringify(payload))).toBeLessThanOrEqual(4_096);
        if (body === text.message) continue;
        const kept = graphemes(body.slice(0, -1));
        expect([body.at(-1), kept]).toEqual(["…", graphemes(text.message).slice(0, kept.length)]);
        // Nothing is wasted either.
        expect(Buffer.byteLength(body)).toBeGreaterThan(2_000);
      }
      const cut = messages.filter(({ body }) => body.endsWith("…"));
      expect(new Set(cut.map(({ provider }) => provider))).toEqual(new Set(["fcm", "apns", "webpush"]));
    });

    it("keep one character where data leave no room for more, and are never empty", async () => {
      const content = (length: number, message: string) => ({
        texts: { en: { title: "t", message } },
        data: { key: "k".repeat(length) },
      });
      const { payloads } = bodyOf(
        await operator.call("previewNotification", {
          as: operator.as,
          json: { audience: { users: [own] }, content: content(1, "m") },
        }),
      );
      const room = payloads.map(({ limit, bytes }: { limit: number; bytes: number }) => limit - bytes);
      const spare = Buffer.byteLength(`${family}…`);
      const { messages } = await arrived(content(Math.min(...room) - spare + 2, fill(family, 4_000)));
      const counts = messages.map(({ body }) => graphemes(body.slice(0, -1)));
      expect(Math.min(...counts.map((kept) => kept.length))).toBe(1);
      expect(new Set(counts.flat())).toEqual(new Set([family]));
    });

    it("are refused, each at its tag, where the caller wants that, and nothing is stored", async () => {
      const { totalElements } = await operator.list();
      const response = await create({ texts, tooLong: "refuse" });
      expect(response.status).toBe(400);
      const errors: readonly { pointer: string; message: string }[] = bodyOf(response).errors;
      expect(errors.map(({ pointer }) => pointer).toSorted()).toEqual(
        ["en", "hi", "zh"].map((tag) => `/body/content/texts/${tag}`),
      );
      expect(errors[0]?.message).toMatch(
        /^makes a payload of \d+ bytes for \w+, which takes \d+; shorten it/,
      );
      expect((await operator.list()).totalElements).toBe(totalElements);
    });
  });

  it("a device that its provider reports dead is removed: the next send does not ask for it", async () => {
    const gone = fakes.webpush.subscribe("ends");
    await save("fcm", "unregistered-1");
    await save("fcm", "alive-1");
    await save("apns", appleToken("dead0400"));
    await save("apns", appleToken("dead0410"));
    await save("webpush", JSON.stringify(gone));
    fakes.webpush.unsubscribe(gone);
    expect(await send()).toMatchObject({ planned: 5, sent: 1, failed: 4, dropped: 0, removalStopped: false });
    const answers = () => all().map(({ ledger }) => ledger.summary().answers);
    const asked = [
      { OK: 1, UNREGISTERED: 1 },
      { OK: 0, BadDeviceToken: 1, Unregistered: 1 },
      { OK: 0, Gone: 1 },
    ];
    expect(answers()).toEqual(asked);
    await until("the dead devices are removed", async () => (await send()).planned === 1);
    const [before] = answers();
    expect(await send()).toMatchObject({ planned: 1, sent: 1, failed: 0 });
    expect(answers()[0]).toEqual({ ...before, OK: (before?.["OK"] ?? 0) + 1 });
  });

  it("a device that was renewed after APNs knew it dead stays", async () => {
    const [renewed, dead] = [appleToken("b1"), appleToken("b2")];
    const play = (tokenPrefix: string, timestamp: number) =>
      fakes.apns.play({ tokenPrefix, answer: "Unregistered", timestamp });
    await save("apns", renewed);
    await save("apns", dead);
    play(renewed, Date.now() - 3_600_000);
    play(dead, Date.now() + 1_000);
    expect(await send()).toMatchObject({ planned: 2, sent: 0, failed: 2 });
    await until("the dead device is removed", async () => (await send()).planned === 1);
    fakes.apns.stopPlaying();
    expect(await send()).toMatchObject({ planned: 1, sent: 1, failed: 0 });
    expect(fakes.apns.ledger.tokens().map(({ token }) => token)).toEqual([renewed]);
  });

  // It takes its time, and the database has no part in it.
  it.runIf(backend === backends.at(-1))(
    "a provider whose quota is used up gets the rest when it says so, and nothing is lost",
    async () => {
      const tokens = Array.from({ length: 60 }, (_, n) => `quota_${n}`);
      // A user each: one has no more than twenty devices.
      for (const token of tokens) await save("fcm", token, offset, `Bearer ${await server.userToken()}`);
      const retryAfter = 7;
      const quota = fakes.fcm.play({ tokenPrefix: "quota_", answer: "QUOTA_EXCEEDED", retryAfter });
      const id = await operator.send({ utcOffsets: [offset] });
      const refusedAt = await new Promise<number>((resolve) => {
        const timer = setInterval(() => {
          if (quota.played === 0) return;
          clearInterval(timer);
          quota.stop();
          resolve(Date.now());
        }, 5);
      });
      expect(await operator.ended(id)).toMatchObject({
        state: "COMPLETED",
        planned: 60,
        sent: 60,
        failed: 0,
        deadLettered: 0,
      });
      const { tokens: reached, repeats, lastAt, answers } = fakes.fcm.ledger.summary();
      expect({ reached, repeats }).toEqual({ reached: 60, repeats: 0 });
      expect(answers["QUOTA_EXCEEDED"]).toBeLessThanOrEqual(60);
      // Whoever was refused was asked no sooner than FCM wanted.
      expect((lastAt ?? 0) - refusedAt).toBeGreaterThanOrEqual((retryAfter - 1) * 1000);
    },
  );

  it("where a provider reports most users dead, removal stops and the notification says so", async () => {
    const users = Array.from({ length: 60 }, (_, n) => ({
      token: n < 55 ? `unregistered-${n}` : `fine-${n}`,
    }));
    for (let next = 0; next < users.length; next += 10) {
      const some = users.slice(next, next + 10);
      await Promise.all(
        some.map(async ({ token }) => save("fcm", token, offset, `Bearer ${await server.userToken()}`)),
      );
    }
    const first = await send();
    expect(first).toMatchObject({ planned: 60, sent: 5, failed: 55 });
    await until(
      "the notification says that removal has stopped",
      async () => (await operator.progress(first.id)).removalStopped,
    );
    expect(await send()).toMatchObject({ planned: 60, sent: 5, failed: 55 });
  });
});
