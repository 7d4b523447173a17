/** What the operations of the push document let in, what they hand on of it, and what they answer. */
import { describe, expect, it } from "vitest";
import { readContract } from "../support/contract-check.ts";
import { backoffice, id, progress, pushOperations, user } from "./http-fixture.ts";

const { asked, call, asUser, asOffice, refusedAt } = pushOperations();

const device = { token: "d-1", expiration: "2027-01-20T12:00:00Z" };

describe("savePushToken", () => {
  const save = (json: object, offset?: string) =>
    asUser("savePushToken", {
      json,
      ...(offset !== undefined && { headers: { "barrier-user-utc-offset": offset } }),
    });

  it("hands on the device, and its offset in minutes", async () => {
    expect(await save({ ...device, provider: "apns" }, "+05:30")).toMatchObject({ status: 204 });
    const expiration = new Date("2027-01-20T12:00:00.000Z");
    expect(asked).toEqual(["u-1", { token: "d-1", expiration, provider: "apns", utcOffset: 330 }]);
  });

  it("hands on the language and the platform", async () => {
    await save({ ...device, language: "de_at", platform: "ios" });
    expect(asked[1]).toMatchObject({ language: "de_at", platform: "ios" });
    asked.length = 0;
    await save({ ...device, language: null, platform: null });
    expect(Object.keys(Object(asked[1]))).toEqual(["token", "expiration", "utcOffset", "authorizationId"]);
    expect(await save({ ...device, platform: "tv" })).toMatchObject({ status: 400 });
  });

  it("hands on no offset and no provider where none was sent", async () => {
    await save({ ...device, expiration: "2027-01-20T14:30:00.5+02:30" });
    const expiration = new Date("2027-01-20T12:00:00.500Z");
    expect(asked).toEqual(["u-1", { token: "d-1", expiration, utcOffset: undefined }]);
  });

  it.each([
    ...["0", "-12", "14", "+3", "-720", "840", "330", "Z", "+03:00", "-0330", "+14:00", "+03"],
    ...["+3:00", "03:00", "UTC+3", "GMT+03:00", "Europe/Berlin", "America/Argentina/Buenos_Aires", "utc"],
  ])("takes the offset %s", async (offset) => void expect((await save(device, offset)).status).toBe(204));

  it("hands on the name of a zone", async () => {
    await save(device, "Europe/Berlin");
    expect(asked[1]).toMatchObject({ utcOffset: "Europe/Berlin" });
  });

  it.each([
    ...[
      "15:00",
      "13:60",
      "+13:60",
      "+15:00",
      "16",
      "77",
      "-13",
      "855",
      "UTC+77",
      "1e1",
      "3.0",
      "Europe Berlin",
    ],
    ...["/Europe", "Europe//Berlin", "../etc", "3 "],
  ])("refuses the offset %s", async (offset) => {
    // fetch would trim it.
    const answer = await save(device, offset.replace(" ", "\u00a0"));
    expect(refusedAt(answer)).toBe("/header/barrier-user-utc-offset");
  });

  it.each([
    ["2027-01-20T12:00Z", "2027-01-20T12:00:00.000Z"],
    ["2027-01-20T12:00+0000", "2027-01-20T12:00:00.000Z"],
    ["2027-01-20T12:00:00+0330", "2027-01-20T08:30:00.000Z"],
    ["2027-01-20T12:00:00.5-03", "2027-01-20T15:00:00.500Z"],
    ["2028-02-29T12:00:00Z", "2028-02-29T12:00:00.000Z"],
    ["9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000Z"],
  ])("takes the expiration %s", async (expiration, instant) => {
    expect((await save({ ...device, expiration })).status).toBe(204);
    expect(asked[1]).toMatchObject({ expiration: new Date(instant) });
  });

  it.each([
    ...[
      "2027-01-20",
      "2027-01-20T12:00:00",
      "2027-01-20 12:00:00Z",
      "2027-02-30T12:00:00Z",
      "2027-01-20T24:00:00Z",
    ],
    ...[
      "2027-02-29T12:00Z",
      "2027-04-31T12:00:00Z",
      "2027-13-01T12:00:00Z",
      "2027-01-20T12Z",
      "2027-01-20T12:60Z",
    ],
    ...[
      "2016-12-31T23:59:60Z",
      "20270120T120000Z",
      "2027-01-20T12:00+3",
      "2027-01-20T12:00+24:00",
      "1799999999",
      "",
    ],
  ])("refuses the expiration %j", async (expiration) => {
    expect(refusedAt(await save({ ...device, expiration }))).toBe("/body/expiration");
  });

  it("takes null for no provider", async () => {
    expect((await save({ ...device, provider: null })).status).toBe(204);
    const expiration = new Date("2027-01-20T12:00:00.000Z");
    expect(asked).toEqual(["u-1", { token: "d-1", expiration, utcOffset: undefined }]);
  });

  it("refuses a token that is empty or longer than 4096 characters, an unknown provider, more members", async () => {
    expect(refusedAt(await save({ ...device, token: "" }))).toBe("/body/token");
    expect(refusedAt(await save({ ...device, token: "x".repeat(4097) }))).toBe("/body/token");
    for (const token of ["é", "a\nb", "a\u007f"]) {
      expect(refusedAt(await save({ ...device, token }))).toBe("/body/token");
    }
    expect(refusedAt(await save({ ...device, provider: "mpns" }))).toBe("/body/provider");
    expect(refusedAt(await save({ ...device, userId: "u-2" }))).toBe("/body/userId");
  });
});

describe("deletePushToken", () => {
  /** What the events of a removal name. */
  const requested = { caller: "app", requestId: expect.stringMatching(/./) };

  const remove = (json: unknown) => asUser("deletePushToken", { json });

  it.each([
    device,
    { token: "d-1" },
    { token: "d-1", all: false },
    { token: "d-1", all: null, expiration: null },
  ])("deletes the one device that %j names", async (json) => {
    const { status, headers } = await remove(json);
    expect([status, headers.get("deprecation")]).toEqual([204, null]);
    expect(asked).toEqual(["u-1", "d-1", requested]);
  });

  it.each([{ all: true }, { all: true, token: null }])("deletes all devices for %j", async (json) => {
    const { status, headers } = await remove(json);
    expect([status, headers.get("deprecation")]).toEqual([204, null]);
    expect(asked).toEqual(["u-1", requested]);
  });

  it("deletes all devices without a body, and answers since when that is deprecated", async () => {
    const since = `@${Date.UTC(2026, 10, 22) / 1000}`;
    for (const options of [{}, { raw: "", headers: { "content-type": "application/json" } }]) {
      const { status, headers } = await asUser("deletePushToken", options);
      expect([status, headers.get("deprecation")]).toEqual([204, since]);
      expect(asked.splice(0)).toEqual(["u-1", requested]);
    }
  });

  it.each([
    ...[{}, { token: "" }, { token: null }, { all: false }, { all: null, token: null }, { all: "true" }],
    ...[{ all: true, token: "d-1" }, { tokens: ["d-1"] }, { expiration: device.expiration }, null, []],
  ])("deletes nothing for %j", async (json) => {
    const { status } = await remove(json);
    expect([status, asked]).toEqual([400, []]);
  });

  it.each([{}, { all: true, token: "d-1" }, { all: false }])(
    "names one place that is wrong in %j",
    async (json) => {
      const { body } = await remove(json);
      expect(Object(body).errors).toMatchObject([{ pointer: "/body/token" }]);
    },
  );
});

describe("sendPushNotification", () => {
  const notification = { title: "t", message: "m", utcOffsets: [0] };
  const send = (json: object, key?: string) =>
    asOffice("sendPushNotification", {
      json,
      ...(key !== undefined && { headers: { "idempotency-key": key } }),
    });

  it("hands on the notification, its offsets in minutes, the client and the key, and names it", async () => {
    const answer = await send({ ...notification, image: "a/b.png", utcOffsets: [-12, 5, 330, 840] }, "k");
    expect([answer.status, answer.headers.get("notification-id")]).toEqual([204, id]);
    const sent = { title: "t", message: "m", image: "a/b.png", utcOffsets: [-720, 300, 330, 840] };
    expect(asked).toEqual(["office", sent, "k"]);
  });

  it("hands on null for no image, and no key for none", async () => {
    await send(notification);
    await send({ ...notification, image: null });
    const sent = { title: "t", message: "m", image: null, utcOffsets: [0] };
    expect(asked).toEqual(["office", sent, undefined, "office", sent, undefined]);
  });

  it("measures the title in characters and the message in bytes", async () => {
    const exact = { ...notification, title: "😀".repeat(256), message: "é".repeat(2000) };
    expect((await send(exact)).status).toBe(204);
    asked.length = 0;
    expect(refusedAt(await send({ ...exact, title: `${exact.title}a` }))).toBe("/body/title");
    expect(refusedAt(await send({ ...exact, message: `${exact.message}a` }))).toBe("/body/message");
    expect(refusedAt(await send({ ...exact, message: "a".repeat(4001) }))).toBe("/body/message");
    expect(refusedAt(await send({ ...exact, message: "" }))).toBe("/body/message");
  });

  it.each([
    "a",
    "promo/summer-2026_v1.jpg",
    ".hidden",
    "летняя распродажа.jpg",
    "a?b#c%2f\\d",
    "a".repeat(255),
  ])("hands on the image %s as it is", async (image) => {
    expect((await send({ ...notification, image })).status).toBe(204);
    expect(asked[1]).toMatchObject({ image });
  });

  it("takes an empty name, as some generators write null, for no image", async () => {
    expect((await send({ ...notification, image: "" })).status).toBe(204);
    expect(asked[1]).toMatchObject({ image: null });
  });

  it.each([
    ...["..", "../a", "a/../b", "a..b", ".", "./a", "a/.", "a/./b", "/a", "a/", "a//b", "//evil.example/a"],
    ...["https://evil.example/a", "data:,a", "a\r\nb: c", "a\n", "a\u009f", "a".repeat(256), "é".repeat(167)],
  ])("refuses the image %j", async (image) => {
    expect(refusedAt(await send({ ...notification, image }))).toBe("/body/image");
  });

  it.each([
    [[], "/body/utcOffsets"],
    [[0, 15.5], "/body/utcOffsets/1"],
    [[20], "/body/utcOffsets/0"],
    [[-13], "/body/utcOffsets/0"],
    [[855], "/body/utcOffsets/0"],
    [[-735], "/body/utcOffsets/0"],
    [["3"], "/body/utcOffsets/0"],
    [[null], "/body/utcOffsets/0"],
    [Array.from({ length: 65 }, (_, index) => index * 15 - 135), "/body/utcOffsets"],
  ])("refuses the offsets %j", async (utcOffsets, pointer) => {
    expect(refusedAt(await send({ ...notification, utcOffsets }))).toBe(pointer);
  });

  it("counts a repeated offset once, also if it is written differently", async () => {
    expect((await send({ ...notification, utcOffsets: [0, 3, 180, 0, 60, 1] })).status).toBe(204);
    expect(asked[1]).toMatchObject({ utcOffsets: [0, 180, 60] });
  });

  it("names a wrong offset once", async () => {
    const { body } = await send({ ...notification, utcOffsets: [17] });
    expect(Object(body).errors).toHaveLength(1);
  });

  it("takes every offset there is", async () => {
    const all = Array.from({ length: 105 }, (_, index) => index * 15 - 720);
    for (const utcOffsets of [all.slice(0, 64), all.slice(64), [-12, -1, 1, 14]]) {
      expect((await send({ ...notification, utcOffsets })).status).toBe(204);
    }
  });

  it.each(["", "a b", "x".repeat(256), "é"])("refuses the key %j", async (key) => {
    expect(refusedAt(await send(notification, key))).toBe("/header/idempotency-key");
  });

  it("takes a key of 255 visible characters", async () => {
    expect((await send(notification, `!~"\\${"x".repeat(251)}`)).status).toBe(204);
  });
});

describe("one notification", () => {
  const controls = ["pauseNotification", "resumeNotification", "cancelNotification", "recallNotification"];

  it.each(["getNotification", ...controls])(
    "%s takes its id in upper case as well, and answers the progress",
    async (operation) => {
      expect((await asOffice(operation, { path: { id: id.toUpperCase() } })).body).toEqual(progress);
      expect(asked).toEqual([id]);
      asked.length = 0;
      for (const bad of ["x", "..", `urn:uuid:${id}`, `${id}0`, id.replaceAll("-", "")]) {
        if (bad !== "..")
          expect(refusedAt(await asOffice(operation, { path: { id: bad } }))).toBe("/path/id");
      }
    },
  );

  it.each(["0", "-1", "01", "1.0", "1e3", "9999999999999999"])("has no dead letter %s", async (letter) => {
    expect(refusedAt(await asOffice("replayDeadLetter", { path: { id: letter } }))).toBe("/path/id");
  });

  it("replays those that the query names", async () => {
    await asOffice("replayAllDeadLetters");
    await asOffice("replayAllDeadLetters", { query: `?provider=fcm&notificationId=${id.toUpperCase()}` });
    expect(asked).toEqual([{}, { provider: "fcm", notificationId: id }]);
    asked.length = 0;
    expect(refusedAt(await asOffice("replayAllDeadLetters", { query: "?notificationId=x" }))).toBe(
      "/query/notificationId",
    );
  });
});

describe("callers", () => {
  const users = ["savePushToken", "deletePushToken", "getNotificationsHistory", "getNotificationsSummary"];
  const contract = readContract("push-orchestration");
  const guarded = contract.operations
    .map((operation) => operation.id)
    .filter((operation) => operation !== "startTestNotifications");

  it.each(guarded)("%s asks for a token, and is for one application", async (operation) => {
    const path = { id, provider: "fcm" };
    const none = await call(operation, { path });
    expect([none.status, none.headers.get("www-authenticate")]).toEqual([401, 'Bearer realm="gatepost"']);
    expect(none.body).toMatchObject({
      detail:
        "Credentials are missing or wrong. Send an access token in the Authorization header, scheme Bearer.",
    });
    const wrong = await call(operation, { path, as: "Bearer wrong" });
    expect(wrong.headers.get("www-authenticate")).toBe('Bearer realm="gatepost", error="invalid_token"');
    const other = await call(operation, { path, as: users.includes(operation) ? backoffice : user });
    expect([other.status, other.headers.get("www-authenticate")]).toEqual([
      403,
      'Bearer realm="gatepost", error="insufficient_scope"',
    ]);
    expect(asked).toEqual([]);
  });

  it("need not say who they are to start a test run", async () => {
    expect((await call("startTestNotifications")).status).toBe(202);
  });
});
