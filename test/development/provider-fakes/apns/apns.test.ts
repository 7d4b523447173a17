import { generateKeyPairSync, randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import type { ClientHttp2Session, OutgoingHttpHeaders } from "node:http2";
import { setTimeout as elapsed } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import { type ApnsFake, startApnsFake } from "../../../../src/development/provider-fakes/apns/apns.ts";
import { movableClock } from "../../../support/movable-clock.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { providerToken, seconds, send, session } from "../clients.ts";

const clock = movableClock();
let fake: ApnsFake;
let bearer: string;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startApnsFake({ clock });
  cleanup.defer(() => fake.close());
  bearer = await providerToken(fake.credentials);
});
afterEach(() => fake.clear());

const device = (): string => randomBytes(32).toString("hex");
const alert = JSON.stringify({ aps: { alert: { title: "Hello", body: "World" } } });

function headersFor(token: string, headers: OutgoingHttpHeaders = {}): OutgoingHttpHeaders {
  return {
    ":method": "POST",
    ":path": `/3/device/${token}`,
    authorization: `bearer ${bearer}`,
    "apns-topic": fake.credentials.topic,
    "apns-push-type": "alert",
    "apns-id": randomUUID(),
    "apns-expiration": "0",
    "apns-priority": "10",
    "apns-collapse-id": "n-1",
    ...headers,
  };
}

/** Headers that are undefined are omitted. */
async function push(
  token: string,
  headers: OutgoingHttpHeaders = {},
  body = alert,
  client: ClientHttp2Session = session(fake.origin),
) {
  const all = headersFor(token, headers);
  for (const [name, value] of Object.entries(all)) if (value === undefined) delete all[name];
  const { text, ...response } = await send(client, all, body);
  return { ...response, text, json: text === "" ? undefined : JSON.parse(text) };
}

describe("a push", () => {
  it("is accepted without a body, under its id", async () => {
    const [token, id] = [device(), randomUUID()];
    const response = await push(token, { "apns-id": id });
    expect(response).toMatchObject({ status: 200, text: "", headers: { "apns-id": id } });
    expect(fake.ledger.token(token)?.messages).toMatchObject([
      { messageId: id, collapseId: "n-1", count: 1 },
    ]);
  });

  it("gets an id if it has none", async () => {
    const response = await push(device(), { "apns-id": undefined });
    expect(response.headers["apns-id"]).toMatch(/^[0-9a-f-]{36}$/);
  });

  it("is for the same device in upper case", async () => {
    const token = device();
    await push(token.toUpperCase());
    expect(fake.ledger.token(token)?.count).toBe(1);
  });

  it.each<[string, number, OutgoingHttpHeaders]>([
    ["MethodNotAllowed", 405, { ":method": "PUT" }],
    ["BadPath", 404, { ":path": "/2/device/00" }],
    ["MissingDeviceToken", 400, { ":path": "/3/device/" }],
    ["BadDeviceToken", 400, { ":path": `/3/device/${"g".repeat(64)}` }],
    ["BadDeviceToken", 400, { ":path": `/3/device/${"a".repeat(62)}` }],
    ["BadDeviceToken", 400, { ":path": `/3/device/${"a".repeat(65)}` }],
    ["MissingProviderToken", 403, { authorization: undefined }],
    ["InvalidProviderToken", 403, { authorization: "bearer abc" }],
    ["MissingTopic", 400, { "apns-topic": undefined }],
    ["TopicDisallowed", 400, { "apns-topic": "com.example.other" }],
    ["BadTopic", 400, { "apns-topic": "com example" }],
    ["InvalidPushType", 400, { "apns-push-type": "loud" }],
    ["InvalidPushType", 400, { "apns-push-type": undefined }],
    ["BadMessageId", 400, { "apns-id": "1" }],
    ["BadMessageId", 400, { "apns-id": randomUUID().toUpperCase().replace(/\d/, "A") }],
    ["BadExpirationDate", 400, { "apns-expiration": "tomorrow" }],
    ["BadExpirationDate", 400, { "apns-expiration": String(Date.now()) }],
    ["BadPriority", 400, { "apns-priority": "7" }],
    ["BadCollapseId", 400, { "apns-collapse-id": "x".repeat(65) }],
  ])("is refused: %s, %i", async (reason, status, headers) => {
    const response = await push(device(), headers);
    expect(response).toMatchObject({ status, json: { reason } });
    expect(fake.ledger.summary()).toMatchObject({ messages: 0, answers: { [reason]: 1 } });
  });

  it("may have 4096 bytes and a collapse id of 64", async () => {
    const body = (length: number) => {
      const around = JSON.stringify({ aps: { alert: "" } }).length;
      return JSON.stringify({ aps: { alert: "x".repeat(length - around) } });
    };
    const collapse = { "apns-collapse-id": "x".repeat(64) };
    expect((await push(device(), collapse, body(4096))).status).toBe(200);
    const tooLarge = await push(device(), {}, body(4097));
    expect(tooLarge).toMatchObject({ status: 413, json: { reason: "PayloadTooLarge" } });
  });

  it.each<[string, number, string, object]>([
    ["accepted", 200, "5", { "content-available": 1 }],
    ["refused in a hurry: BadPriority", 400, "10", { "content-available": 1 }],
    ["refused without content-available: InvalidPushType", 400, "5", {}],
    ["refused with an alert: InvalidPushType", 400, "5", { "content-available": 1, alert: "x" }],
  ])("in the background is %s", async (what, status, priority, aps) => {
    const headers = { "apns-push-type": "background", "apns-priority": priority };
    const response = await push(device(), headers, JSON.stringify({ aps }));
    expect(response.status).toBe(status);
    if (status === 400) expect(what).toContain(response.json.reason);
  });

  it.each(["", "{", "{}", "[]"])("is refused without an aps: %j", async (body) => {
    expect(await push(device(), {}, body)).toMatchObject({ status: 400, json: { reason: "PayloadEmpty" } });
  });
});

describe("a provider token", () => {
  const otherKey = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;

  it.each<[string, () => Promise<string>]>([
    ["another key id", () => providerToken(fake.credentials, {}, "OTHERKEY01")],
    ["another team", () => providerToken(fake.credentials, { iss: "OTHERTEAM1" })],
    ["no iat", () => providerToken(fake.credentials, { iat: undefined })],
    ["an iat of the future", () => providerToken(fake.credentials, { iat: seconds() + 3600 })],
    [
      "another key",
      () =>
        providerToken({
          ...fake.credentials,
          privateKey: otherKey.export({ type: "pkcs8", format: "pem" }).toString(),
        }),
    ],
  ])("is refused with %s", async (_, make) => {
    const response = await push(device(), { authorization: `bearer ${await make()}` });
    expect(response).toMatchObject({ status: 403, json: { reason: "InvalidProviderToken" } });
  });

  it("is good for an hour", async () => {
    expect((await push(device())).status).toBe(200);
    clock.move(3590);
    expect((await push(device())).status).toBe(200);
    clock.move(30);
    expect(await push(device())).toMatchObject({ status: 403, json: { reason: "ExpiredProviderToken" } });
    clock.move(-3620);
  });

  it("is not to be renewed within 20 minutes", async () => {
    // Signed once: a token of the next second would be a different one.
    const first = seconds() - 3000;
    const at = async (minutes: number) => {
      const token = await providerToken(fake.credentials, { iat: first + minutes * 60 });
      return push(device(), { authorization: `bearer ${token}` });
    };
    expect((await at(0)).status).toBe(200);
    expect(await at(19)).toMatchObject({ status: 429, json: { reason: "TooManyProviderTokenUpdates" } });
    expect((await at(21)).status).toBe(200);
    expect((await at(0)).status).toBe(200);
  });

  it("may be signed by several servers if it is of the same time", async () => {
    const iat = seconds() - 60;
    for (let server = 0; server < 3; server += 1) {
      const token = await providerToken(fake.credentials, { iat });
      expect((await push(device(), { authorization: `bearer ${token}` })).status).toBe(200);
    }
  });
});

describe("a connection", () => {
  it("has one stream until a provider token was right on it, then 1000", async () => {
    const client = session(fake.origin);
    await once(client, "remoteSettings");
    expect(client.remoteSettings.maxConcurrentStreams).toBe(1);
    await push(device(), { authorization: undefined }, alert, client);
    await elapsed(20);
    expect(client.remoteSettings.maxConcurrentStreams).toBe(1);
    const more = once(client, "remoteSettings");
    await push(device(), {}, alert, client);
    await more;
    expect(client.remoteSettings.maxConcurrentStreams).toBe(1000);
    const all = await Promise.all(Array.from({ length: 300 }, () => push(device(), {}, alert, client)));
    expect(all.every(({ status }) => status === 200)).toBe(true);
  });

  it("is HTTP/2 only", async () => {
    await expect(
      fetch(`${fake.origin}/3/device/${device()}`, { method: "POST", body: alert }),
    ).rejects.toThrow("fetch failed");
  });

  it("ends by GOAWAY with a JSON reason", async () => {
    fake.play({ fault: "goaway", reason: "Shutdown", times: 1 });
    const client = session(fake.origin);
    const goaway = once(client, "goaway");
    expect((await push(device(), {}, alert, client)).status).toBe(200);
    const [, , data] = await goaway;
    expect(JSON.parse(String(data))).toEqual({ reason: "Shutdown" });
  });
});

describe("failures", () => {
  it.each([
    ["BadDeviceToken", 400],
    ["ExpiredProviderToken", 403],
    ["TooManyRequests", 429],
    ["TooManyProviderTokenUpdates", 429],
    ["InternalServerError", 500],
    ["ServiceUnavailable", 503],
    ["Shutdown", 503],
  ] as const)("plays %s", async (answer, status) => {
    fake.play({ answer });
    const id = randomUUID();
    const response = await push(device(), { "apns-id": id });
    expect(response).toMatchObject({ status, headers: { "apns-id": id } });
    expect(response.json).toEqual({ reason: answer });
  });

  it.each(["Unregistered", "ExpiredToken"] as const)(
    "plays %s with a time in milliseconds",
    async (answer) => {
      fake.play({ answer, timestamp: 1_700_000_000_000, times: 1 });
      fake.play({ answer });
      const first = await push(device());
      expect(first).toMatchObject({ status: 410, json: { reason: answer, timestamp: 1_700_000_000_000 } });
      expect((await push(device())).json).toEqual({ reason: answer, timestamp: clock.now() });
    },
  );

  it.each([
    ["dead0400", "BadDeviceToken"],
    ["dead0410", "Unregistered"],
    ["dead0411", "ExpiredToken"],
    ["dead0429", "TooManyRequests"],
    ["dead0503", "ServiceUnavailable"],
  ])("answers a device token of %s… with %s, by its digits", async (prefix, reason) => {
    expect((await push(prefix.padEnd(64, "0"))).json).toMatchObject({ reason });
  });
});
