/** Entries that are rows of their own, beside those in blocks: what their reader sees of both, and when they go. */
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Content } from "../../../src/push/content/content.ts";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { createHistory, type History } from "../../../src/push/history/history.ts";
import { cleanUp } from "../../../src/push/janitor.ts";
import { createAccept, plainRequest } from "../../../src/push/notifications/accept-notification.ts";
import type { Audience } from "../../../src/push/notifications/audience.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, ttlSeconds } from "../notifications/notification-lab.ts";

const texts = {
  en: { title: "Hello {{name}}", message: "Your order is ready" },
  de: { title: "Hallo {{name}}", message: "Ihre Bestellung ist da" },
};
const content: Content = {
  ...{ defaultLanguage: "en", texts, link: "shop:/orders", data: { order: "7" } },
  ...{ silent: false, tooLong: "shorten" },
};
const personal = [
  { user: "anna", variables: { name: "Anna {{name}}" } },
  { user: "boris", variables: { name: "Boris" } },
];
const newest = { page: 0, size: 20, sort: [] };
const daySeconds = 24 * 60 * 60;

describe.each(backends)("entries that are rows on %s", (backend) => {
  let lab: Lab;
  let history: History;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
    history = createHistory(lab);
  });
  afterEach(async () => {
    await lab.clear();
    await lab.db.execute(sql`delete from push.history_views`);
  });

  /** Sends to users, and to everybody at offset 0. */
  async function send(audience: Partial<Audience>, said: Partial<Content> = {}, hasHistory = true) {
    const accept = createAccept({ ...lab, ttlSeconds });
    const { delivery, ...request } = plainRequest({ ...texts.en, image: null }, audience);
    const { notificationId } = await accept({
      ...{ clientId: "backoffice", kind: "USERS", idempotencyKey: undefined },
      request: {
        ...request,
        content: { ...content, ...said },
        delivery: { ...delivery, history: hasHistory },
      },
    });
    await lab.plan();
    lab.clock.move(1);
    return notificationId;
  }
  async function sendToAll() {
    const id = await lab.accept();
    await lab.plan();
    lab.clock.move(1);
    return id;
  }
  const counts = async () => {
    const [found] = await rows<Record<string, number>>(
      lab.db,
      sql`select (select count(*)::int from push.history_entries) as entries,
        (select count(*)::int from push.history_users) as users,
        (select count(*)::int from push.history_views) as views,
        (select count(*)::int from push.notifications) as notifications`,
    );
    return found;
  };
  const idsOf = async (user: string) => (await history.page(user, newest, false)).content.map(({ id }) => id);
  const keepDays = (days: number) => cleanUp({ db: lab.db, historyRetentionDays: days });
  const twoDevices = () => lab.addDevices([{ userId: "anna" }, { userId: "boris" }]);

  test("stand among the others in order, in the reader's language, with his values", async () => {
    await twoDevices();
    const [first, own, last] = [await sendToAll(), await send({ personal }), await sendToAll()];
    const page = await history.page("anna", newest, false, ["fr", "de-AT"]);
    expect(page.content.map(({ id }) => id)).toEqual([last, own, first]);
    expect(page.totalElements).toBe(3);
    expect(page.content[1]).toMatchObject({
      notification: { title: "Hallo Anna {{name}}", message: texts.de.message, image: null },
      ...{ link: "shop:/orders", data: { order: "7" }, viewed: false },
    });
    expect(page.content[0]).toMatchObject({ link: undefined, data: undefined });
    for (const wanted of [undefined, [], ["fr"]]) {
      const { content } = await history.page("boris", newest, false, wanted);
      expect(content[1]?.notification.title).toBe("Hello Boris");
    }
    expect((await history.page("anna", { ...newest, page: 1, size: 1 }, false)).content).toMatchObject([
      { id: own },
    ]);
    expect((await lab.notifications.get(own)).recipients).toBe(2);
    // A text without variables keeps its braces.
    await send({ users: ["anna"] }, { link: undefined, data: undefined });
    const [plain] = (await history.page("anna", newest, false, ["de"])).content;
    expect(plain?.notification.title).toBe("Hallo {{name}}");
  });

  test("are unread until they are viewed, and are gone once they are recalled", async () => {
    await twoDevices();
    const own = await send({ personal });
    expect(await history.summary("anna")).toBe(false);
    expect(await history.summary("anna", newest)).toBe(false);
    await history.page("anna", newest, true);
    expect([await history.summary("anna"), await history.summary("boris")]).toEqual([true, false]);
    expect((await history.page("anna", newest, false)).content).toMatchObject([{ id: own, viewed: true }]);
    await lab.notifications.recall(own);
    expect(await idsOf("boris")).toEqual([]);
    expect(await history.summary("boris")).toBe(true);
    expect((await lab.notifications.get(own)).recipients).toBe(2);
  });

  test("there are none of what is silent, or not for the history", async () => {
    await twoDevices();
    const isSilent = { texts: {}, defaultLanguage: undefined, silent: true };
    const silent = await send({ users: ["anna"] }, isSilent, false);
    const hidden = await send({ users: ["anna", "boris"] }, {}, false);
    expect([await idsOf("anna"), (await counts())?.["entries"]]).toEqual([[], 0]);
    expect((await lab.notifications.get(silent)).recipients).toBe(1);
    expect((await lab.notifications.get(hidden)).recipients).toBe(2);
  });

  test("go with their user, but for those of who has registered again since", async () => {
    await twoDevices();
    await send({ personal });
    await lab.db.transaction((tx) => forgetUser(tx, "boris", new Date("2100-01-01")));
    expect(await counts()).toMatchObject({ entries: 1, users: 1 });
    // What was sent since the deletion stays, with its view, and what was sent before goes.
    const deletedAt = new Date(lab.clock.now() - 60_500);
    const since = await send({ personal: personal.slice(0, 1) });
    await history.page("anna", newest, true);
    await lab.db.execute(
      sql`update push.devices set renewed_at = ${new Date(lab.clock.now()).toISOString()}::timestamptz`,
    );
    await lab.db.transaction((tx) => forgetUser(tx, "anna", deletedAt));
    expect((await history.page("anna", newest, false)).content).toMatchObject([{ id: since, viewed: true }]);
    expect(await counts()).toMatchObject({ entries: 1, users: 1 });
  });

  test("are removed when they are too old, and their user with the last one of either kind", async () => {
    await lab.addDevices([{ userId: "anna" }, { userId: "boris" }, { userId: "carla", utcOffset: 60 }]);
    const until = lab.clock.now();
    lab.clock.move(-3 * daySeconds);
    await send({ users: ["anna", "boris", "carla"] });
    await history.page("boris", newest, true);
    lab.clock.move(daySeconds);
    const broadcast = await sendToAll();
    lab.clock.move(daySeconds);
    const late = await send({ users: ["anna"] });
    await lab.db.execute(sql`update push.notifications set state = 'COMPLETED', completed_at = now()`);
    await lab.db.execute(sql`delete from push.delivery_chunks`);
    lab.clock.move((until - lab.clock.now()) / 1000);
    await keepDays(2.5);
    expect(await counts()).toEqual({ entries: 1, users: 2, views: 0, notifications: 2 });
    expect([await idsOf("anna"), await idsOf("boris")]).toEqual([[late, broadcast], [broadcast]]);
    await keepDays(1.5);
    expect(await counts()).toEqual({ entries: 1, users: 1, views: 0, notifications: 1 });
    expect(await idsOf("anna")).toEqual([late]);
    await keepDays(0.5);
    expect(await counts()).toEqual({ entries: 0, users: 0, views: 0, notifications: 0 });
  });
});
