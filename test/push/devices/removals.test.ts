/** Devices that go without their user's doing: reported dead, or with the user. */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import { forgetUser, removeDeadDevices, removeSignedOut } from "../../../src/push/devices/remove-devices.ts";
import { endedAuthorization } from "../../../src/push/events.ts";
import { createHistory } from "../../../src/push/history/history.ts";
import { historyEntries, insertEntries, viewEntries } from "../../support/history-rows.ts";
import { insertNotification } from "../../support/push-rows.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeviceStore, type DeviceStore } from "./device-store.ts";

/** When the identity was deleted: after all that the test has registered. */
const afterwards = new Date("2100-01-01");

/** Of a removal that its user has not asked for. */
const none = { requestId: "", caller: "" };

describe.each(backends)("removals on %s", (backend) => {
  let store: DeviceStore;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createDeviceStore(backend);
    cleanup.defer(() => store.own.drop());
  });
  beforeEach(() => store.clear());

  const expiration = () => new Date(store.clock.now() + 3_600_000);
  async function save(userId: string, token: string, authorizationId?: string): Promise<number> {
    const device = { token, expiration: expiration(), utcOffset: undefined, authorizationId };
    await store.devices.save(userId, device);
    return Number((await store.all()).find((device) => device.token === token)?.id);
  }
  const tokens = async () => (await store.all()).map(({ token }) => token);

  test("a dead device goes with an event, unless it was renewed at that moment or later", async () => {
    const [dead, same, before, other] = [
      await save("anna", "dead"),
      await save("anna", "same"),
      await save("anna", "before"),
      await save("boris", "other"),
    ];
    await store.events();
    const renewed = new Map((await store.all()).map((device) => [device.token, device.renewed]));
    const at = (token: string) => renewed.get(token) ?? Number.NaN;
    const reports = [
      { deviceId: dead, asOf: at("dead") + 1 },
      { deviceId: dead, asOf: at("dead") + 5 },
      { deviceId: same, asOf: at("same") },
      { deviceId: before, asOf: at("before") - 1 },
      { deviceId: 2 ** 40, asOf: at("dead") + 1 },
    ];
    expect(await store.db.transaction((tx) => removeDeadDevices(tx, reports))).toBe(1);
    expect(await tokens()).toEqual(["same", "before", "other"]);
    expect(await store.events()).toEqual([
      [
        "removed",
        {
          userId: "anna",
          deviceId: String(dead),
          provider: "outbox",
          reason: "REMOVAL_REASON_DEAD",
          ...none,
        },
      ],
    ]);
    expect(await store.db.transaction((tx) => removeDeadDevices(tx, reports))).toBe(0);
    expect(await store.db.transaction((tx) => removeDeadDevices(tx, []))).toBe(0);
    expect(other).toBeGreaterThan(before);
  });

  test("the removal of dead devices is undone with the transaction that it is part of, events included", async () => {
    const deviceId = await save("anna", "dead");
    await store.events();
    const asOf = (await store.now()) + 1;
    const failed = store.db.transaction(async (tx) => {
      await removeDeadDevices(tx, [{ deviceId, asOf }]);
      throw new Error("the job is lost");
    });
    await expect(failed).rejects.toThrow("the job is lost");
    expect(await tokens()).toEqual(["dead"]);
    expect(await store.events()).toEqual([]);
  });

  test.each([0, 1, 1_795_233_600_123, 8.64e15, 1e21])(
    "a provider may say %d: nothing fails",
    async (asOf) => {
      const deviceId = await save("anna", "dead");
      const removed = await removeDeadDevices(store.db, [{ deviceId, asOf }]);
      expect(removed).toBe(asOf > store.clock.now() ? 1 : 0);
    },
  );

  test("a token that is renewed while it is reported dead stays, whoever comes first", async () => {
    for (let turn = 0; turn < 20; turn += 1) {
      const deviceId = await save("anna", "contested");
      await store.age(1);
      // Renewals are stored in whole milliseconds.
      const asOf = Math.floor(await store.now()) - 1;
      await Promise.all([
        store.db.transaction((tx) => removeDeadDevices(tx, [{ deviceId, asOf }])),
        save("anna", "contested"),
      ]);
      expect(await tokens()).toEqual(["contested"]);
    }
  });

  test("with an authorization go the user's devices that were last registered with it, and no others", async () => {
    const gone = [await save("anna", "first", "a"), await save("anna", "second", "a")];
    await save("anna", "of another", "b");
    await save("anna", "of none");
    for (const authorization of ["a", "b"]) await save("anna", "renewed by another", authorization);
    for (const authorization of ["a", undefined]) await save("anna", "renewed by none", authorization);
    await save("boris", "of another user", "a");
    await store.events();
    for (let turn = 0; turn < 2; turn += 1) await removeSignedOut(store.db, "anna", "a");
    expect((await tokens()).toSorted()).toEqual([
      "of another",
      "of another user",
      "of none",
      "renewed by another",
      "renewed by none",
    ]);
    const reason = "REMOVAL_REASON_AUTHORIZATION_REVOKED";
    const about = { userId: "anna", provider: "outbox", reason, ...none };
    const events = gone.map((id) => ["removed", { ...about, deviceId: String(id) }]);
    expect(await store.events()).toEqual(expect.arrayContaining(events));
  });

  test("a user who is forgotten leaves no device and no history, each device with an event, and others keep theirs", async () => {
    const ids = [await save("anna", "a1"), await save("anna", "a2")];
    await save("boris", "b");
    await insertNotification(store.db, { acceptedAt: 1e12, viewedBy: { anna: true, boris: false } });
    await insertNotification(store.db, { acceptedAt: 1e12 + 1, viewedBy: { anna: false } });
    await store.events();
    const forget = (userId: string) => store.db.transaction((tx) => forgetUser(tx, userId, afterwards));
    await forget("anna");
    expect(await tokens()).toEqual(["b"]);
    expect(await rows(store.db, sql`select user_id from ${historyEntries}`)).toEqual([{ user_id: "boris" }]);
    const about = {
      userId: "anna",
      provider: "outbox",
      reason: "REMOVAL_REASON_IDENTITY_DELETED",
      ...none,
    };
    const events = await store.events();
    expect(events).toEqual(
      expect.arrayContaining(ids.map((id) => ["removed", { ...about, deviceId: String(id) }])),
    );
    expect(events).toHaveLength(2);
    await Promise.all([forget("anna"), forget("anna"), forget("nobody")]);
    expect(await store.events()).toEqual([]);
  });

  test("a device that was renewed after the deletion stays, however late the deletion is learned of", async () => {
    await save("anna", "of the deleted identity");
    await store.age(61);
    const deletedAt = new Date((await store.now()) - 61_000);
    await save("anna", "of the new identity");
    await store.db.transaction((tx) => forgetUser(tx, "anna", deletedAt));
    expect(await tokens()).toEqual(["of the new identity"]);
  });

  describe("where a new identity has the id of a deleted one, entries since the deletion", () => {
    const newest = { page: 0, size: 10, sort: [] };
    const pageOf = (userId: string) => createHistory({ db: store.db }).page(userId, newest, false);
    let deletedAt: number;
    /** Entries from before the deletion or the minute after it, and two that are newer; some of them are viewed. */
    beforeEach(async () => {
      deletedAt = (await store.now()) - 240_000;
      for (const [minute, viewed] of [
        [-10, true],
        [-5, false],
        [0.5, false],
        [2, true],
        [3, false],
      ] as const) {
        const acceptedAt = deletedAt + minute * 60_000;
        await insertNotification(store.db, { acceptedAt, viewedBy: { anna: viewed, boris: viewed } });
      }
      await save("anna", "of the deleted identity");
      await store.age(240);
    });
    const forget = () => store.db.transaction((tx) => forgetUser(tx, "anna", new Date(deletedAt)));

    test("stay if it has a device, each as it was viewed, however late and often the deletion is learned of", async () => {
      await save("anna", "of the new identity");
      const [fourth, third] = (await pageOf("anna")).content;
      const before = await pageOf("boris");
      for (let turn = 0; turn < 3; turn += 1) {
        await forget();
        expect(await pageOf("anna")).toMatchObject({ totalElements: 2, content: [fourth, third] });
      }
      expect([third?.viewed, fourth?.viewed]).toEqual([true, false]);
      expect(await pageOf("boris")).toEqual(before);
      expect(
        await rows(store.db, sql`select user_id from ${historyEntries} where user_id = 'anna'`),
      ).toHaveLength(2);
    });

    test("count once among the recipients", async () => {
      await save("anna", "of the new identity");
      const counts = () =>
        rows(
          store.db,
          sql`
        select notification_id, sum(bit_count(recipient_bits))::int from push.history_blocks group by 1 order by 1`,
        );
      const before = await counts();
      await forget();
      expect(await pageOf("anna")).toMatchObject({ totalElements: 2 });
      expect(await counts()).toEqual(before);
    });

    test("stay while they are read and the deletion is learned of, several times at once", async () => {
      await save("anna", "of the new identity");
      const { content } = await pageOf("anna");
      const read = () => createHistory({ db: store.db }).page("anna", newest, true);
      await Promise.all(Array.from({ length: 12 }, (_, n) => (n % 3 === 0 ? forget() : read())));
      const kept = await pageOf("anna");
      expect(kept.content.map(({ id }) => id)).toEqual(content.slice(0, 2).map(({ id }) => id));
      await read();
      expect((await pageOf("anna")).content.map(({ viewed }) => viewed)).toEqual([true, true]);
    });

    test("go if it has none", async () => {
      await forget();
      expect(await pageOf("anna")).toMatchObject({ totalElements: 0 });
    });
  });

  test("a user with 10,000 entries is forgotten at once", async () => {
    await insertEntries(store.db, uuidv7(1e12), sql`select 'anna'`);
    await store.db.execute(sql`
      insert into push.history_blocks
      select user_block, gen_random_uuid(), recipient_bits from push.history_blocks, generate_series(1, 9999)`);
    await viewEntries(store.db, sql`select * from ${historyEntries} where user_id = 'anna'`);
    await store.db.transaction((tx) => forgetUser(tx, "anna", afterwards));
    expect(
      await createHistory({ db: store.db }).page("anna", { page: 0, size: 1, sort: [] }, false),
    ).toMatchObject({
      totalElements: 0,
    });
  });

  test("who forgets a user reads no reports of others", async () => {
    await store.db.execute(sql`
      insert into push.dead_reports
      select n, 'outbox', 'user-' || n, now(), now(), 'WAITING' from generate_series(1, 3000) n`);
    const plan = await store.db.transaction(async (tx) => {
      const execute = vi.spyOn(tx, "execute");
      await forgetUser(tx, "user-7", afterwards);
      const statements = execute.mock.calls.flatMap(([one]) =>
        typeof one === "string" ? [] : [one.getSQL()],
      );
      execute.mockRestore();
      const removal = statements.find((one) => new PgDialect().sqlToQuery(one).sql.includes("dead_reports"));
      return rows<{ "QUERY PLAN": string }>(tx, sql`explain ${removal}`);
    });
    expect(plan.map((line) => line["QUERY PLAN"]).join("\n")).toContain("on dead_reports_user");
    expect(await rows(store.db, sql`select count(*)::int as n from push.dead_reports`)).toEqual([
      { n: 2999 },
    ]);
    await store.db.execute(sql`delete from push.dead_reports`);
  });

  test.runIf(backend === "PostgreSQL")(
    "forgetting waits for steps of planning, and takes what they wrote with it; both or neither is gone",
    async () => {
      const other = await store.own.open();
      await save("anna", "a");
      const order: string[] = [];
      let forgotten: Promise<void> | undefined;
      await other.db.transaction(async (tx) => {
        await tx.execute(sql`select pg_advisory_xact_lock_shared(hashtext('push.plan'))`);
        forgotten = store.db
          .transaction((tx) => forgetUser(tx, "anna", afterwards))
          .then(() => void order.push("forgotten"));
        const waiting = sql`select 1 from pg_locks where locktype = 'advisory' and not granted
          and database = (select oid from pg_database where datname = current_database())`;
        await expect.poll(async () => (await rows(tx, waiting)).length).toBe(1);
        expect(await tokens()).toEqual(["a"]);
        await insertEntries(tx, uuidv7(1e12), sql`select 'anna'`);
        order.push("planned");
      });
      await forgotten;
      expect(order).toEqual(["planned", "forgotten"]);
      expect(await tokens()).toEqual([]);
      expect(await rows(store.db, sql`select 1 from ${historyEntries}`)).toEqual([]);
    },
  );

  test.runIf(backend === "PostgreSQL")(
    "saves, removals, dead reports and forgetting at once make nothing fail, and events add up to what is there",
    async () => {
      for (let turn = 0; turn < 10; turn += 1) {
        const ids = await Promise.all(["x", "y", "z"].map((token) => save("anna", token)));
        const dead = ids.map((deviceId) => ({ deviceId, asOf: Date.now() + 60_000 }));
        await Promise.all([
          store.db.transaction((tx) => forgetUser(tx, "anna", afterwards)),
          ...["z", "y", "x"].map((token) => save("boris", token)),
          store.db.transaction((tx) => removeDeadDevices(tx, dead.toReversed())),
          store.devices.removeAll("anna"),
          ...["x", "y", "z"].map((token) => save("anna", token)),
          store.db.transaction((tx) => removeDeadDevices(tx, dead)),
          store.db.transaction((tx) => forgetUser(tx, "boris", afterwards)),
          store.devices.remove("boris", "y"),
        ]);
      }
      const balance = new Map<unknown, number>();
      for (const [type, { userId }] of await store.events()) {
        balance.set(userId, (balance.get(userId) ?? 0) + (type === "registered" ? 1 : -1));
      }
      const all = await store.all();
      for (const user of ["anna", "boris"]) {
        expect(balance.get(user) ?? 0, user).toBe(all.filter(({ userId }) => userId === user).length);
      }
    },
  );
});

test.each([
  ["REVOCATION_REASON_CLIENT", "a"],
  ["REVOCATION_REASON_REUSE", "a"],
  ["REVOCATION_REASON_IDENTITY_DELETED", "a"],
  ["REVOCATION_REASON_PASSWORD_CHANGED", "a"],
  ["REVOCATION_REASON_CLIENT_DISABLED", undefined],
  ["REVOCATION_REASON_OF_TOMORROW", undefined],
  [1000, undefined],
])("an authorization that ends with %s signs out %s", (reason, signedOut) => {
  const data = { identityId: "anna", authorizationId: "a", clientId: "app", reason, memberOfTomorrow: {} };
  expect(endedAuthorization({ data })).toBe(signedOut);
});
