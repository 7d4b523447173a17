/** History: who sees what of it, in which order, and what marks an entry as viewed. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { forgetUser } from "../../../src/push/devices/remove-devices.ts";
import { createHistory, type History, type PageRequest } from "../../../src/push/history/history.ts";
import { clearHistory, historyEntries } from "../../support/history-rows.ts";
import { insertNotification, type NotificationRow } from "../../support/push-rows.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** When the identity was deleted: after all that the test has registered. */
const afterwards = new Date("2100-01-01");

const start = Date.UTC(2026, 10, 21, 9, 30, 15, 123);
const newest: PageRequest = { page: 0, size: 20, sort: [] };

describe.each(backends)("history on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  let db: Database;
  let history: History;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase(backend, pushMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    db = database.db;
    history = createHistory({ db });
  });
  beforeEach(async () => {
    await clearHistory(db);
    await db.execute(sql`delete from push.notifications`);
  });

  /** A notification accepted so many milliseconds after the start. */
  const notification = (after: number, row: Omit<NotificationRow, "acceptedAt"> = {}) =>
    insertNotification(db, { acceptedAt: start + after, ...row });
  /** Entries of Anna's, viewed or not, a second apart: the oldest first. @returns their ids */
  async function entries(...viewed: boolean[]): Promise<string[]> {
    const ids: string[] = [];
    for (const one of viewed) ids.push(await notification(ids.length * 1_000, { viewedBy: { anna: one } }));
    return ids;
  }
  async function idsOf(request: Partial<PageRequest>, markViewed = false): Promise<string[]> {
    const { content } = await history.page("anna", { ...newest, ...request }, markViewed);
    return content.map(({ id }) => id);
  }
  async function unread(userId: string): Promise<string[]> {
    const found = await rows<{ id: string }>(
      db,
      sql`select notification_id::text as id from ${historyEntries} where user_id = ${userId} and not viewed order by 1`,
    );
    return found.map(({ id }) => id);
  }

  test("an entry says what was sent and when it was accepted, to the millisecond", async () => {
    const text = { title: "Tïtle 🔔", message: "line\nline \"'\\", image: "promo/one.png" };
    const first = await notification(0, { ...text, viewedBy: { anna: true } });
    const second = await notification(877, { viewedBy: { anna: false } });
    const plain = { title: "a title", message: "a message", image: null };
    expect(await history.page("anna", newest, false)).toEqual({
      content: [
        {
          id: second,
          userId: "anna",
          viewed: false,
          notification: plain,
          sendAt: "2026-11-21T09:30:16.000Z",
        },
        { id: first, userId: "anna", viewed: true, notification: text, sendAt: "2026-11-21T09:30:15.123Z" },
      ],
      number: 0,
      size: 20,
      totalElements: 2,
    });
  });

  test("a test run, and what was cancelled or is still being sent, shows like any other", async () => {
    const viewedBy = { anna: false };
    const ids = [
      await notification(3, { isTest: true, viewedBy }),
      await notification(2, { state: "CANCELLED", viewedBy }),
      await notification(1, { state: "PAUSED", viewedBy }),
      await notification(0, { state: "SENDING", viewedBy }),
    ];
    expect(await idsOf({})).toEqual(ids);
  });

  test("somebody else's entries are neither shown, counted nor marked", async () => {
    const both = await notification(0, { viewedBy: { anna: false, boris: false } });
    const boris = await notification(1, { viewedBy: { boris: false } });
    expect(await history.page("anna", newest, true)).toMatchObject({
      content: [{ id: both }],
      totalElements: 1,
    });
    expect(await unread("boris")).toEqual([both, boris]);
    expect([await history.summary("anna"), await history.summary("boris")]).toEqual([true, false]);
    expect((await history.page("boris", newest, false)).content).toMatchObject([
      { viewed: false },
      { viewed: false },
    ]);
    for (const user of ["ann", "anna ", "Anna", "anna%", "a_na", "' or true --", ""]) {
      expect(await history.page(user, newest, true)).toMatchObject({ content: [], totalElements: 0 });
    }
    expect(await unread("boris")).toEqual([both, boris]);
  });

  test("marking is for just the entries of the page, which are answered as they were before", async () => {
    const [a = "", b = "", c = "", d = "", e = ""] = await entries(false, true, false, false, false);
    expect(await idsOf({ size: 2, page: 1 })).toEqual([c, b]);
    expect(await unread("anna")).toEqual([a, c, d, e]);
    const marked = await history.page("anna", { ...newest, size: 2, page: 1 }, true);
    expect(marked.content.map(({ id, viewed }) => [id, viewed])).toEqual([
      [c, false],
      [b, true],
    ]);
    expect(await unread("anna")).toEqual([a, d, e]);
    const again = await history.page("anna", { ...newest, size: 2, page: 1 }, true);
    expect(again.content.map(({ viewed }) => viewed)).toEqual([true, true]);
    await history.page("anna", { ...newest, page: 7 }, true);
    expect(await unread("anna")).toEqual([a, d, e]);
    await history.page("anna", { ...newest, size: 1, sort: ["viewed,asc"] }, true);
    expect(await unread("anna")).toEqual([d, e]);
  });

  test("who marks the unread page by page, the unread first, skips none", async () => {
    const ids = await entries(...Array.from({ length: 9 }, (_, index) => index % 4 === 3));
    const sort = ["viewed", "sendAt,desc"];
    const wasUnread = ids.filter((_, index) => index % 4 !== 3).toReversed();
    const seen: string[] = [];
    for (let page = 0; page < 5; page += 1) {
      const { content } = await history.page("anna", { page, size: 2, sort }, true);
      seen.push(...content.map(({ id }) => id));
    }
    expect(seen.slice(0, wasUnread.length)).toEqual(wasUnread);
    expect(new Set(seen)).toEqual(new Set(ids));
    expect(await unread("anna")).toEqual([]);
    expect((await idsOf({ sort })).slice(0, wasUnread.length), "for ten minutes").toEqual(wasUnread);
    await db.execute(sql`update push.history_views set viewed_at = viewed_at - interval '10 minutes'`);
    const late = await notification(60_000, { viewedBy: { anna: false } });
    expect(await idsOf({ sort })).toEqual([late, ...ids.toReversed()]);
  });

  test("the summary is of all entries, or of those of a page", async () => {
    expect(await history.summary("anna")).toBe(true);
    expect(await history.summary("anna", newest)).toBe(true);
    await entries(false, true, true, true);
    expect(await history.summary("anna")).toBe(false);
    expect(await history.summary("anna", { ...newest, size: 3 })).toBe(true);
    expect(await history.summary("anna", { ...newest, size: 3, page: 1 })).toBe(false);
    expect(await history.summary("anna", { ...newest, size: 3, page: 2 })).toBe(true);
    expect(await history.summary("anna", { ...newest, size: 1, sort: ["sendAt,asc"] })).toBe(false);
    await history.page("anna", newest, true);
    expect(await history.summary("anna")).toBe(true);
  });

  test("pages together are the whole, each entry once, and beyond the end they are empty", async () => {
    const ids = await entries(...Array.from({ length: 23 }, (_, index) => index % 3 === 0));
    for (const size of [1, 5, 22, 23, 24, 100]) {
      const all: string[] = [];
      for (let page = 0; page <= Math.ceil(23 / size); page += 1) {
        const found = await history.page("anna", { page, size, sort: [] }, false);
        expect(found).toMatchObject({ number: page, size, totalElements: 23 });
        all.push(...found.content.map(({ id }) => id));
      }
      expect(all).toEqual(ids.toReversed());
    }
    for (const page of [1, 1e6, 2 ** 31, 2 ** 53 - 1, 1e15, 1e17, 1e300]) {
      expect(await history.page("anna", { page, size: 100, sort: [] }, true)).toEqual({
        content: [],
        number: page,
        size: 100,
        totalElements: 23,
      });
      expect(await history.summary("anna", { page, size: 100, sort: [] })).toBe(true);
    }
  });

  describe("sort", () => {
    let a: string;
    let b: string;
    let c: string;
    let d: string;
    beforeEach(async () => {
      // b and c were accepted in the same millisecond.
      const [lower = "", higher = ""] = [uuidv7(start + 1), uuidv7(start + 1)].sort();
      a = await notification(0, { viewedBy: { anna: true } });
      b = await notification(1, { id: lower, viewedBy: { anna: false } });
      c = await notification(1, { id: higher, viewedBy: { anna: true } });
      d = await notification(2, { viewedBy: { anna: false } });
    });

    test("orders by what it is asked for, and ties by id", async () => {
      const cases: [string[], string[]][] = [
        [[], [d, c, b, a]],
        [["sendAt,desc"], [d, c, b, a]],
        [["sendAt,asc"], [a, b, c, d]],
        [["sendAt"], [a, b, c, d]],
        [["id,desc"], [d, c, b, a]],
        [["id,asc"], [a, b, c, d]],
        [
          ["sendAt,desc", "id,asc"],
          [d, b, c, a],
        ],
        [
          ["sendAt,asc", "id,desc"],
          [a, c, b, d],
        ],
        [["viewed,asc"], [b, d, a, c]],
        [["viewed,desc"], [c, a, d, b]],
        [
          ["viewed,asc", "sendAt,desc"],
          [d, b, c, a],
        ],
        [
          ["viewed,desc", "id,asc"],
          [a, c, b, d],
        ],
        [
          ["sendAt,desc", "viewed,desc"],
          [d, c, b, a],
        ],
        [
          ["sendAt,desc", "viewed,asc"],
          [d, b, c, a],
        ],
        [
          ["sendAt,asc", "viewed,desc", "id,desc"],
          [a, c, b, d],
        ],
        [
          ["id,asc", "viewed,desc", "sendAt,desc"],
          [a, b, c, d],
        ],
        [
          ["sendAt,desc", "sendAt,asc"],
          [d, b, c, a],
        ],
        [[""], [d, c, b, a]],
        [
          ["sendAt,DESC", "", "Viewed,Desc"],
          [d, c, b, a],
        ],
        [["SENDAT,viewed,desc"], [d, c, b, a]],
        [["viewed,id,desc"], [c, a, d, b]],
        [["viewed,id"], [b, d, a, c]],
      ];
      for (const [sort, expected] of cases) {
        expect(await idsOf({ sort }), sort.join(" ")).toEqual(expected);
        const [first = ""] = await idsOf({ sort, size: 1 });
        const third = await idsOf({ sort, size: 1, page: 2 });
        expect([first, ...third], sort.join(" ")).toEqual([expected[0], expected[2]]);
        expect(await idsOf({ sort }, true), sort.join(" ")).toEqual(expected);
        await db.execute(
          sql`delete from push.history_views where notification_id not in (${a}::uuid, ${c}::uuid)`,
        );
      }
    });

    test.each([
      ",",
      "sendAt,",
      "sendAt,up",
      "desc",
      "desc,sendAt",
      "sendAt desc",
      "send_at,desc",
      " sendAt,desc",
      "sendAt,desc ",
      "sendAt,desc\n",
      "sendAt,desc,id",
      "userId,asc",
      "title,asc",
      "notification.title,asc",
      "1,asc",
      "viewed;drop table push.history,asc",
      "viewed,asc--",
      "(select 1),asc",
      "__proto__,asc",
      "constructor",
    ])("%j is refused with its place", async (sort) => {
      const problem = {
        kind: { status: 400, code: "invalid_request" },
        errors: [{ pointer: "/query/sort" }],
      };
      await expect(idsOf({ sort: [sort] }, true)).rejects.toMatchObject(problem);
      await expect(idsOf({ sort: ["sendAt,desc", sort] })).rejects.toMatchObject(problem);
      await expect(history.summary("anna", { ...newest, sort: [sort] })).rejects.toMatchObject(problem);
      expect(await unread("anna")).toEqual([b, d]);
    });
  });

  test.each<[Partial<PageRequest>, string]>([
    [{ size: 0 }, "/query/size"],
    [{ size: -1 }, "/query/size"],
    [{ size: 101 }, "/query/size"],
    [{ size: 1e9 }, "/query/size"],
    [{ size: 1.5 }, "/query/size"],
    [{ size: Number.NaN }, "/query/size"],
    [{ page: -1 }, "/query/page"],
    [{ page: 0.5 }, "/query/page"],
    [{ page: Number.NaN }, "/query/page"],
    [{ page: Number.POSITIVE_INFINITY }, "/query/page"],
  ])("%j is refused with its place", async (changes, pointer) => {
    await expect(idsOf(changes)).rejects.toMatchObject({ kind: { status: 400 }, errors: [{ pointer }] });
    await expect(history.summary("anna", { ...newest, ...changes })).rejects.toMatchObject({
      errors: [{ pointer }],
    });
  });

  test("readers that mark the same entries at once, in any order, all succeed, and afterwards all are viewed", async () => {
    const ids = await entries(...Array.from({ length: 60 }, () => false));
    const sorts = ["sendAt,desc", "sendAt,asc", "viewed,asc", "viewed,desc", "id,asc"];
    for (let turn = 0; turn < 5; turn += 1) {
      await db.execute(sql`delete from push.history_views`);
      const pages = await Promise.all(
        Array.from({ length: 30 }, (_, index) =>
          history.page(
            "anna",
            { page: index % 2, size: 50, sort: [sorts[index % sorts.length] ?? ""] },
            true,
          ),
        ),
      );
      for (const { content, totalElements, number } of pages) {
        expect([content.length, totalElements]).toEqual([number === 0 ? 50 : 10, 60]);
      }
      expect(await idsOf({ size: 100 }, true)).toEqual(ids.toReversed());
      expect(await history.summary("anna")).toBe(true);
    }
  });

  test("reading while the user is forgotten makes nothing fail, and afterwards nothing is left", async () => {
    const forget = (userId: string) => db.transaction((tx) => forgetUser(tx, userId, afterwards));
    for (let turn = 0; turn < 5; turn += 1) {
      await entries(...Array.from({ length: 40 }, () => false));
      await Promise.all([
        ...Array.from({ length: 8 }, (_, index) =>
          history.page("anna", { ...newest, size: 40, sort: [index % 2 ? "id,asc" : "id,desc"] }, true),
        ),
        forget("anna"),
        history.summary("anna"),
        forget("anna"),
      ]);
      expect(await history.page("anna", newest, false)).toMatchObject({ content: [], totalElements: 0 });
    }
  });
});
