/** The pages of the push operations: their size, order and marks, as they are asked for. */
import { describe, expect, it } from "vitest";
import { readContract } from "../support/contract-check.ts";
import { pushOperations, user } from "./http-fixture.ts";

const { asked, asUser, asOffice, refusedAt, origin } = pushOperations();

describe("pages", () => {
  const history = (query: string) => asUser("getNotificationsHistory", { query });

  it("are the first 20, unless asked for", async () => {
    await history("");
    await history("?page=3&size=100&sort=viewed,asc&sort=sendAt&markViewed=true&more=1");
    const sort = ["viewed,asc", "sendAt"];
    expect(asked).toEqual([
      ...["u-1", { page: 0, size: 20, sort: [] }, false, []],
      ...["u-1", { page: 3, size: 100, sort }, true, []],
    ]);
  });

  it.each([
    ["?sort=", [""]],
    ["?sort=sendAt,DESC", ["sendAt,DESC"]],
    ["?sort=sendAt,viewed,desc", ["sendAt,viewed,desc"]],
    ["?sort=SENDAT&sort=Viewed,Asc", ["SENDAT", "Viewed,Asc"]],
  ])("are sorted by %s", async (query, sort) => {
    expect((await history(query)).status).toBe(200);
    expect(asked).toEqual(["u-1", { page: 0, size: 20, sort }, false, []]);
  });

  it.each(["True", "true", "TRUE"])("are marked as viewed for %s, and not for its opposite", async (yes) => {
    await history(`?markViewed=${yes}`);
    await history(`?markViewed=${yes === "True" ? "False" : "false"}`);
    expect([asked[2], asked[6]]).toEqual([true, false]);
  });

  it("have 100 entries at most, whatever is asked for", async () => {
    for (const size of ["100", "101", "1000000000", "99999999999999999999999"]) {
      expect((await history(`?size=${size}`)).status).toBe(200);
      expect(asked.splice(0)[1]).toEqual({ page: 0, size: 100, sort: [] });
      expect((await asUser("getNotificationsSummary", { query: `?size=${size}` })).status).toBe(200);
      expect(asked.splice(0)[1]).toEqual({ page: 0, size: 100, sort: [] });
      for (const operation of ["listNotifications", "listDeadLetters"]) {
        expect((await asOffice(operation, { query: `?size=${size}` })).status).toBe(200);
        expect(asked.splice(0)[0]).toMatchObject({ page: 0, size: 100 });
      }
    }
  });

  it("of notifications have those of the states that are asked for", async () => {
    const page = { page: 0, size: 20, sort: [] };
    for (const [query, states] of [
      ["", undefined],
      ["?state=PAUSED", ["PAUSED"]],
      ["?state=PLANNING&state=SENDING", ["PLANNING", "SENDING"]],
    ] as const) {
      expect((await asOffice("listNotifications", { query })).status).toBe(200);
      expect(asked.splice(0)).toEqual([page, { states }]);
    }
    for (const query of ["?state=", "?state=paused", "?state=PAUSED,SENDING", "?state=PAUSED&state=DONE"])
      expect(refusedAt(await asOffice("listNotifications", { query }))).toMatch(/^\/query\/state\/\d$/);
  });

  it("mark nothing as viewed for HEAD, which shows nothing", async () => {
    const { operations } = readContract("push-orchestration");
    const path = operations.find((operation) => operation.id === "getNotificationsHistory")?.path;
    const ask = (method: string) =>
      fetch(`${origin()}${path}?markViewed=true`, { method, headers: { authorization: user } });
    for (const method of ["HEAD", "GET"]) expect((await ask(method)).status).toBe(200);
    const first = { page: 0, size: 20, sort: [] };
    expect(asked).toEqual([...["u-1", first, false, []], ...["u-1", first, true, []]]);
  });

  it("are in the languages of the reader, in canonical form, the most wanted first", async () => {
    await asUser("getNotificationsHistory", { headers: { "accept-language": "*, en;q=0.5, zh_TW" } });
    expect(asked[3]).toEqual(["zh-TW", "en"]);
  });

  it("count for a summary only where a page was asked for", async () => {
    for (const query of ["", "?sort=id,asc", "?page=1", "?size=5"]) {
      expect((await asUser("getNotificationsSummary", { query })).body).toEqual({ viewed: true });
    }
    const second = { page: 1, size: 20, sort: [] };
    expect(asked).toEqual([
      ...["u-1", undefined, "u-1", undefined],
      ...["u-1", second, "u-1", { page: 0, size: 5, sort: [] }],
    ]);
  });

  it.each([
    ...["size=0", "size=-1", "size=1e9", "size=1e1", "size=0x10", "size=%205", "size=5.0", "size="],
    ...["page=-1", "page=1000001", "page=1e15", "page=1000000000000000", "page=NaN", "page=0&page=1"],
    ...["sort=userId,asc", "sort=sendAt,up", "sort=,", "sort=desc", "sort=sendAt,asc,id", "sort=id%3Bdrop"],
    ...["markViewed=1", "markViewed=yes", "markViewed="],
  ])("are refused for %s", async (query) => {
    const pointer = `/query/${query.split("=")[0]}`;
    expect(refusedAt(await history(`?${query}`)).replace(/\/\d$/, "")).toBe(pointer);
  });
});
