/** Devices: who has a token, from when to when, and what others can do about it. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createDevices, type DeviceToSave } from "../../../src/push/devices/devices.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeviceStore, type DeviceStore, maxPerUser, providers } from "./device-store.ts";

const hour = 3_600_000;

describe.each(backends)("devices on %s", (backend) => {
  let store: DeviceStore;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createDeviceStore(backend);
    cleanup.defer(() => store.own.drop());
  });
  beforeEach(() => store.clear());

  function device(changes: Partial<DeviceToSave> = {}): DeviceToSave {
    return { token: "t1", expiration: new Date(store.clock.now() + hour), utcOffset: undefined, ...changes };
  }
  const save = (userId: string, changes?: Partial<DeviceToSave>) =>
    store.devices.save(userId, device(changes));

  test("a new token is stored with what was said of it, at UTC unless an offset was given, and has an event", async () => {
    // Its times are in whole milliseconds.
    const before = Math.floor(await store.now());
    await save("anna", { token: "word", provider: "fcm", utcOffset: 330 });
    const after = Math.ceil(await store.now());
    await save("anna", { token: "any thing" });
    const times = { expires: store.clock.now() + hour };
    const [first, second, ...others] = await store.all();
    expect(first).toMatchObject({ userId: "anna", provider: "fcm", token: "word", utcOffset: 330, ...times });
    // By the database's clock: that of the process stands still in this test.
    expect(first?.registered).toBe(first?.renewed);
    expect(first?.renewed).toBeGreaterThanOrEqual(before);
    expect(first?.renewed).toBeLessThanOrEqual(after);
    expect(second).toMatchObject({
      userId: "anna",
      provider: "outbox",
      token: "any thing",
      utcOffset: 0,
      ...times,
    });
    expect(others).toEqual([]);
    expect(await store.events()).toEqual([
      ["registered", { userId: "anna", deviceId: first?.id, provider: "fcm", utcOffset: 330 }],
      ["registered", { userId: "anna", deviceId: second?.id, provider: "outbox", utcOffset: 0 }],
    ]);
  });

  test("renewing changes what was said, keeps the offset where none is, and is no event", async () => {
    await save("anna", { utcOffset: 120 });
    await store.events();
    await store.age(60);
    const [before] = await store.all();
    const renewedSince = Math.floor(await store.now());
    const expires = store.clock.now() + 2 * hour;
    await save("anna", { provider: "fcm", expiration: new Date(expires) });
    const [{ renewed = 0 } = {}] = await store.all();
    expect(renewed).toBeGreaterThanOrEqual(renewedSince);
    const kept = { ...before, provider: "fcm", expires, renewed: expect.any(Number) };
    expect(await store.all()).toEqual([kept]);
    await save("anna", { provider: "fcm", expiration: new Date(expires), utcOffset: -720 });
    expect(await store.all()).toEqual([{ ...kept, utcOffset: -720 }]);
    await save("anna", { provider: "fcm", expiration: new Date(expires), utcOffset: 0 });
    expect(await store.all()).toEqual([{ ...kept, utcOffset: 0 }]);
    expect(await store.events()).toEqual([]);
  });

  test("a zone is kept with its offset of now; it stays where none is said, and gives way to an offset", async () => {
    store.clock.move((Date.parse("2027-01-20T12:00:00Z") - store.clock.now()) / 1000);
    const place = async () => (await store.all()).map(({ utcOffset, timeZone }) => [utcOffset, timeZone]);
    await save("anna", { utcOffset: "europe/berlin" });
    expect(await place()).toEqual([[60, "Europe/Berlin"]]);
    expect(await store.events()).toMatchObject([["registered", { utcOffset: 60 }]]);
    await save("anna");
    expect(await place()).toEqual([[60, "Europe/Berlin"]]);
    store.clock.move(180 * 86_400);
    await save("anna", { utcOffset: "Europe/Berlin" });
    expect(await place()).toEqual([[120, "Europe/Berlin"]]);
    await save("boris");
    expect(await place()).toEqual([[120, "Europe/Berlin"]]);
    await save("boris", { utcOffset: 0 });
    expect(await place()).toEqual([[0, null]]);
    await save("boris", { utcOffset: "Asia/Kolkata" });
    expect(await place()).toEqual([[330, "Asia/Calcutta"]]);
  });

  test("renewing takes no ids, so that planning has no gaps to walk through", async () => {
    await save("anna", { token: "first" });
    for (let turn = 0; turn < 20; turn += 1) await save("anna", { token: "first" });
    await save("anna", { token: "second" });
    const [first, second] = await store.all();
    expect(Number(second?.id) - Number(first?.id)).toBe(1);
  });

  test("a token that changes hands keeps its row and offset but not its id, and both users have an event", async () => {
    await save("anna", { token: "word", provider: "fcm", utcOffset: 345 });
    await store.age(60);
    const [before] = await store.all();
    await store.events();
    await save("boris", { token: "word" });
    const [after, ...others] = await store.all();
    expect(others).toEqual([]);
    expect(after).toMatchObject({ userId: "boris", provider: "outbox", token: "word", utcOffset: 345 });
    expect(after?.registered).toBe(after?.renewed);
    expect(after?.registered).toBeGreaterThan(before?.registered ?? 0);
    expect(Number(after?.id)).toBeGreaterThan(Number(before?.id));
    const events = await store.events();
    expect(events).toHaveLength(2);
    expect(events).toEqual(
      expect.arrayContaining([
        [
          "removed",
          {
            userId: "anna",
            deviceId: before?.id,
            provider: "fcm",
            reason: "REMOVAL_REASON_MOVED",
            requestId: "",
            caller: "",
          },
        ],
        ["registered", { userId: "boris", deviceId: after?.id, provider: "outbox", utcOffset: 345 }],
      ]),
    );
    await save("anna", { token: "word", utcOffset: 60 });
    expect(await store.all()).toMatchObject([{ userId: "anna", utcOffset: 60 }]);
  });

  test("language and platform stay what they were where an app does not say them, and go with a moved token", async () => {
    await save("anna", { token: "t1", language: "zh_tw" });
    expect(await store.all()).toMatchObject([{ language: "zh-Hant-TW", platform: null }]);
    await save("anna", { token: "t1", platform: "android" });
    expect(await store.all()).toMatchObject([{ language: "zh-Hant-TW", platform: "android" }]);
    await save("boris", { token: "t1", language: "iw" });
    expect(await store.all()).toMatchObject([{ userId: "boris", language: "he-Hebr", platform: "android" }]);
    for (const language of ["jp", "english!", ""]) {
      const refused = { errors: [{ pointer: "/body/language" }] };
      await expect(save("boris", { token: "t1", language })).rejects.toMatchObject(refused);
    }
  });

  test("another user's token is not removed, one's own is, and repeating it changes nothing", async () => {
    await save("anna", { token: "a" });
    await save("boris", { token: "b" });
    await store.events();
    await store.devices.remove("boris", "a");
    await store.devices.remove("boris", "unknown");
    await store.devices.removeAll("nobody");
    expect(await store.all()).toMatchObject([{ token: "a" }, { token: "b" }]);
    expect(await store.events()).toEqual([]);
    const [{ id: deviceId } = { id: "" }] = await store.all();
    const origin = { requestId: "r-1", caller: "app" };
    await store.devices.remove("anna", "a", origin);
    await store.devices.remove("anna", "a");
    await store.devices.removeAll("anna");
    expect(await store.all()).toMatchObject([{ token: "b" }]);
    expect(await store.events()).toEqual([
      ["removed", { userId: "anna", deviceId, provider: "outbox", reason: "REMOVAL_REASON_USER", ...origin }],
    ]);
  });

  test("without a token all of the caller's go, however many, and nobody else's", async () => {
    await save("boris", { token: "b" });
    // More than a statement removes.
    await store.db.execute(sql`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      select 'anna', 'outbox', n::text, sha256(n::text::bytea), 0, now(), now(), now() from generate_series(1, 1001) as n`);
    await store.events();
    await store.devices.removeAll("anna");
    expect(await store.all()).toMatchObject([{ token: "b" }]);
    expect(await store.events()).toHaveLength(1001);
  });

  test("a token that was moved away is not its former user's to remove", async () => {
    await save("anna");
    await save("boris");
    await store.devices.remove("anna", "t1");
    await store.devices.removeAll("anna");
    expect(await store.all()).toMatchObject([{ userId: "boris", token: "t1" }]);
  });

  test.each<[string, Partial<DeviceToSave>, string[]]>([
    ["an empty token", { token: "" }, ["/body/token"]],
    ["a token too long", { token: "x".repeat(4097) }, ["/body/token"]],
    ["a token far too long", { token: "x".repeat(100_000) }, ["/body/token"]],
    ["4097 characters of two code units", { token: "😀".repeat(4097) }, ["/body/token"]],
    ["NUL in a token", { token: "a\0b" }, ["/body/token"]],
    ["half a character in a token", { token: "a\ud83d" }, ["/body/token"]],
    [
      "what the provider knows to be none of its tokens",
      { token: "two words", provider: "fcm" },
      ["/body/token"],
    ],
    ["a provider that is not in use", { provider: "apns" }, ["/body/provider"]],
    ["a zone that does not exist", { utcOffset: "Mars/Olympus_Mons" }, ["/header/barrier-user-utc-offset"]],
    ["an expiration that has passed", { expiration: new Date(0) }, ["/body/expiration"]],
    ["an expiration that is no date", { expiration: new Date(Number.NaN) }, ["/body/expiration"]],
    [
      "all of it at once",
      { token: "", provider: "webpush", expiration: new Date(1) },
      ["/body/token", "/body/provider", "/body/expiration"],
    ],
  ])("%s is refused with its place, and nothing is stored", async (_, changes, pointers) => {
    const refused = await save("anna", changes).then(
      () => undefined,
      (error: unknown) => error,
    );
    expect(refused).toMatchObject({ kind: { status: 400, code: "invalid_request" } });
    expect(refused).toMatchObject({
      errors: pointers.map((pointer) => expect.objectContaining({ pointer })),
    });
    expect(await store.all()).toEqual([]);
  });

  test("now is not in the future, and the next millisecond is", async () => {
    await expect(save("anna", { expiration: new Date(store.clock.now()) })).rejects.toMatchObject({
      errors: [{ pointer: "/body/expiration" }],
    });
    await save("anna", { expiration: new Date(store.clock.now() + 1) });
    expect(await store.all()).toHaveLength(1);
  });

  test("an expiration may be however far; beyond the year 9999 it is the end of that year", async () => {
    await save("anna", { token: "far", expiration: new Date("9999-12-31T23:59:59.000Z") });
    await save("anna", { token: "farther", expiration: new Date(8.64e15) });
    expect((await store.all()).map(({ expires }) => new Date(expires).toISOString())).toEqual([
      "9999-12-31T23:59:59.000Z",
      "9999-12-31T23:59:59.999Z",
    ]);
  });

  test("a provider that is no longer in use is not fallen back on for a device that names it", async () => {
    const only = new Map([...providers].filter(([name]) => name === "fcm"));
    const { db, clock } = store;
    const devices = createDevices({ db, clock, providers: only, defaultProvider: "fcm", maxPerUser });
    await expect(devices.save("anna", device({ provider: "outbox" }))).rejects.toMatchObject({
      errors: [{ pointer: "/body/provider", message: "must be one of fcm" }],
    });
  });

  test.each([
    ["the longest token of wide characters", "😀".repeat(4096)],
    ["SQL", "'; drop table push.devices; --"],
    ["array syntax", '{"a",\\"b}'],
    ["line ends and a tab", "a\r\n\tb"],
    ["a name of every object", "__proto__"],
  ])("%s is a token like another", async (_, token) => {
    await save("anna", { token });
    await save("anna", { token });
    expect((await store.all()).map((row) => row.token)).toEqual([token]);
    await store.devices.remove("anna", token);
    expect(await store.all()).toEqual([]);
  });

  test("tokens that differ at the end only, or in form only, are different", async () => {
    const tokens = [`${"x".repeat(4095)}a`, `${"x".repeat(4095)}b`, "é", "e\u0301", "T1", "t1", "t1 "];
    for (const token of tokens) await save("anna", { token });
    expect((await store.all()).map((row) => row.token)).toEqual(tokens);
  });

  test("50 saves of a new token by two users at once: one row, no error, and every event in its place", async () => {
    for (let turn = 0; turn < 5; turn += 1) {
      const users = Array.from({ length: 50 }, (_, index) => (index % 2 ? "anna" : "boris"));
      await Promise.all(users.map((userId) => save(userId, { token: `contested-${turn}` })));
      const all = await store.all();
      expect(all).toHaveLength(turn + 1);
      const [last] = all.slice(-1);
      const events = await store.events();
      // Each registration but the last was ended by a removal, and the last is the user's who has it.
      const count = (type: string, userId: string) =>
        events.filter(([of, data]) => of === type && data["userId"] === userId).length;
      for (const userId of ["anna", "boris"]) {
        const has = last?.userId === userId ? 1 : 0;
        expect(count("registered", userId) - count("removed", userId)).toBe(has);
      }
    }
  });

  test("of saves one after another the last has the token, also through another process", async () => {
    await Promise.all([save("anna"), save("boris")]);
    await save("clara");
    expect(await store.all()).toMatchObject([{ userId: "clara" }]);
  });

  test("saves and removals of the same tokens at once never fail, and nobody loses a token to another's removal", async () => {
    const tokens = ["x", "y", "z"];
    for (let turn = 0; turn < 10; turn += 1) {
      await Promise.all([
        ...tokens.flatMap((token) => [save("anna", { token }), save("anna", { token })]),
        ...tokens.toReversed().map((token) => store.devices.remove("anna", token)),
        store.devices.removeAll("anna"),
        ...tokens.toReversed().map((token) => save("boris", { token })),
        store.devices.removeAll("anna"),
      ]);
      // Whoever was last, afterwards Boris saves and Anna removes: Boris has them.
      await Promise.all(tokens.map((token) => save("boris", { token })));
      await Promise.all([
        ...Array.from({ length: 10 }, () => store.devices.removeAll("anna")),
        ...tokens.map((token) => store.devices.remove("anna", token)),
      ]);
      expect(await rows(store.db, sql`select distinct user_id from push.devices`)).toEqual([
        { user_id: "boris" },
      ]);
      expect(await store.all()).toHaveLength(tokens.length);
    }
    const registered = new Map<unknown, number>();
    for (const [type, { userId }] of await store.events()) {
      registered.set(userId, (registered.get(userId) ?? 0) + (type === "registered" ? 1 : -1));
    }
    expect(Object.fromEntries(registered)).toEqual({ anna: 0, boris: 3 });
  });
});
