/** A device is what its provider means, however its token is spelled; and a user has so many of them. */
import { createECDH, generateKeyPairSync, randomBytes } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { newVapidCredentials } from "../../../src/development/provider-fakes/credentials.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { createDevices, type Devices } from "../../../src/push/devices/devices.ts";
import { vapidKeyOf } from "../../../src/push/provider-key-settings.ts";
import type { ProviderName } from "../../../src/push/provider-settings.ts";
import { ApnsProvider } from "../../../src/push/providers/apns/apns.ts";
import { FcmProvider } from "../../../src/push/providers/fcm/fcm.ts";
import type { PushProvider } from "../../../src/push/providers/provider.ts";
import { WebPushProvider } from "../../../src/push/providers/webpush/webpush.ts";
import { http2Clients } from "../../support/http2-clients.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeviceStore, type DeviceStore, maxPerUser } from "./device-store.ts";

const webPush = new WebPushProvider(
  {
    vapidKeys: [vapidKeyOf(newVapidCredentials().privateKey)],
    subject: "mailto:push@example.com",
    allowedHosts: ["fcm.googleapis.com"],
  },
  systemClock,
  http2Clients.own,
);
const apnsKey = generateKeyPairSync("ec", {
  namedCurve: "P-256",
  privateKeyEncoding: { type: "pkcs8", format: "pem" },
  publicKeyEncoding: { type: "spki", format: "pem" },
}).privateKey;
const apns = new ApnsProvider(
  { endpoint: "https://127.0.0.1", key: apnsKey, keyId: "K", teamId: "T", topic: "t" },
  systemClock,
  http2Clients.own,
);
const fcm = new FcmProvider(
  { endpoint: "https://127.0.0.1", account: { projectId: "p" } },
  systemClock,
  http2Clients.own,
);
const hour = 3_600_000;

/** Keys of a browser. */
const newKeys = () => {
  const browser = createECDH("prime256v1");
  return { p256dh: browser.generateKeys("base64url"), auth: randomBytes(16).toString("base64url") };
};
const endpoint = "https://fcm.googleapis.com/fcm/send/e1";
const keys = newKeys();
/** The same subscription, as apps have written it. */
const spellings = [
  JSON.stringify({ endpoint, keys }),
  JSON.stringify({ endpoint, expirationTime: null, keys: { auth: keys.auth, p256dh: keys.p256dh } }, null, 2),
  JSON.stringify({ keys: { p256dh: `${keys.p256dh}=`, auth: `${keys.auth}==` }, endpoint }),
  JSON.stringify({ endpoint: endpoint.replace(".com/", ".com:443/"), keys }).replace(
    "fcm/send",
    "fcm\\/send",
  ),
] as const;

describe.each(backends)("a device on %s", (backend) => {
  let store: DeviceStore;
  let devices: Devices;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createDeviceStore(backend);
    cleanup.defer(() => store.own.drop());
    const { db, clock } = store;
    const providers = new Map<ProviderName, Pick<PushProvider, "tokenProblem" | "deviceOf">>([
      ["apns", apns],
      ["webpush", webPush],
      ["fcm", fcm],
      ["outbox", { tokenProblem: () => undefined }],
    ]);
    devices = createDevices({ db, clock, providers, defaultProvider: "webpush", maxPerUser });
  });
  beforeEach(() => store.clear());

  const save = (userId: string, token: string, provider: ProviderName = "webpush") =>
    devices.save(userId, {
      token,
      provider,
      expiration: new Date(store.clock.now() + hour),
      utcOffset: undefined,
    });

  test("of a browser is one in every spelling of its subscription, and whoever saved it last has it", async () => {
    for (const [index, token] of spellings.entries()) await save(`user-${index % 3}`, token);
    expect(await store.all()).toMatchObject([{ userId: "user-0", token: spellings[0] }]);
    const renewed = JSON.stringify({ endpoint, keys: newKeys() });
    await save("user-0", renewed);
    expect(await store.all()).toMatchObject([{ userId: "user-0", token: renewed }]);
    await devices.remove("user-0", spellings[1]);
    expect(await store.all()).toEqual([]);
  });

  test("of Chrome is one at either path of its endpoint, whoever has it", async () => {
    const at = (path: string) => JSON.stringify({ endpoint: `https://fcm.googleapis.com/${path}/e1`, keys });
    const [older, newer] = [at("fcm/send"), at("wp")];
    await save("anna", older);
    await save("boris", newer);
    expect(await store.all()).toMatchObject([{ userId: "boris", token: newer }]);
    await Promise.all([save("anna", older), save("boris", newer), save("clara", older)]);
    expect(await store.all()).toHaveLength(1);
    await store.clear();
    await save("boris", newer);
    await devices.remove("boris", older);
    expect(await store.all()).toEqual([]);
  });

  test("of Firebase is one for each installation and user, with the newest of its tokens", async () => {
    const installation = "fH3kz9TQ0y2mXbCd_e1-aZ";
    const token = (n: number) => `${installation}:APA91b${n}`;
    await save("anna", token(0), "fcm");
    await save("boris", token(1), "fcm");
    await save("anna", "another:APA91b", "fcm");
    await save("anna", `${installation}`, "fcm");
    await store.db.execute(
      sql`
        update push.devices set utc_offset = 180, time_zone = 'Europe/Moscow', language = 'de-Latn', platform = 'ios'
        where token = ${token(0)}`,
    );
    await store.events();
    await save("anna", token(2), "fcm");
    expect((await store.all()).at(-1)).toMatchObject({
      ...{ utcOffset: 180, timeZone: "Europe/Moscow", language: "de-Latn", platform: "ios" },
    });
    const kept = async () => (await store.all()).map((row) => [row.userId, row.token]);
    const others = [
      ["boris", token(1)],
      ["anna", "another:APA91b"],
      ["anna", installation],
    ];
    expect(await kept()).toEqual([...others, ["anna", token(2)]]);
    expect(await store.events()).toMatchObject([
      ["registered", { userId: "anna" }],
      ["removed", { userId: "anna", reason: "REMOVAL_REASON_REPLACED" }],
    ]);
    // A version before this has kept an older one beside it.
    await store.db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      values ('anna', 'fcm', ${token(9)}, sha256('9'), 0, now() + interval '1 day', now(), now() - interval '1 day')`);
    await save("anna", token(2), "fcm");
    expect(await kept()).toEqual([...others, ["anna", token(2)]]);
    for (let turn = 0; turn < 5; turn += 1) {
      await Promise.all([3, 4, 5].map((n) => save("anna", token(3 * turn + n), "fcm")));
      expect(await store.all()).toHaveLength(4);
    }
  });

  test("of Apple is one in either case of its digits", async () => {
    const token = randomBytes(32).toString("hex");
    for (const text of [token.toUpperCase(), token]) await save("anna", text, "apns");
    expect(await store.all()).toMatchObject([{ userId: "anna", token }]);
    await devices.remove("anna", token.toUpperCase());
    expect(await store.all()).toEqual([]);
  });

  test("that was renewed longest ago gives way to another one, with an event", async () => {
    for (let n = 0; n < maxPerUser; n += 1) {
      await save("anna", `t${n}`, "outbox");
    }
    await save("anna", "t0", "outbox");
    await save("boris", "of Boris", "outbox");
    await store.events();
    await save("anna", "of Boris", "outbox");
    const tokens = (await store.all()).map((row) => row.token);
    expect(tokens).toHaveLength(maxPerUser);
    expect(tokens).toContain("t0");
    expect(tokens).not.toContain("t1");
    const removed = (await store.events()).filter(([type]) => type === "removed");
    expect(removed.map(([, data]) => data["reason"]).sort()).toEqual([
      "REMOVAL_REASON_LIMIT",
      "REMOVAL_REASON_MOVED",
    ]);
  });

  test("never is one too many, however many are saved at once", async () => {
    await Promise.all(Array.from({ length: 60 }, (_, n) => save("anna", `t${n}`, "outbox")));
    expect(await store.all()).toHaveLength(maxPerUser);
  });
});
