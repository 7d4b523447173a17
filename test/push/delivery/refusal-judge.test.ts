/** Whose fault tokens of somebody else are: each user counts once, and most of many users decide. */
import { describe, expect, test } from "vitest";
import { RefusalJudge } from "../../../src/push/delivery/breaker.ts";

/** Adds users, each with a response. @returns whether the last of them led to a refusal */
function judged(judge: RefusalJudge, users: readonly (readonly [string, boolean])[]): boolean {
  return users.map(([user, isForeign]) => judge.add(user, isForeign ? "foreign" : "sent")).at(-1) ?? false;
}

const users = (count: number, isForeign: boolean, name = isForeign ? "foreign" : "good") =>
  Array.from({ length: count }, (_, index) => [`${name}-${index}`, isForeign] as const);

describe("users who are refused", () => {
  const refused = (judge: RefusalJudge, ...names: string[]) =>
    names.map((name) => judge.add(name, "refused")).at(-1);

  test.each([
    ["two show nothing", ["ann", "bob"], [], false],
    ["three do", ["ann", "bob"], ["cid"], true],
    ["one counts once", ["ann", "ann", "ann", "bob"], ["bob"], false],
  ])("%s", (_, first, last, isRefused) => {
    const judge = new RefusalJudge();
    refused(judge, ...first);
    expect(refused(judge, ...first, ...last)).toBe(isRefused);
  });

  test("are judged anew by a token that is taken, and not by a foreign one", () => {
    const judge = new RefusalJudge();
    refused(judge, "ann", "bob");
    judge.add("dan", "sent");
    expect(refused(judge, "cid", "dan")).toBe(false);
    judge.add("eve", "foreign");
    judge.add("eve", "failed");
    expect(refused(judge, "ann")).toBe(true);
  });
});

describe("users with foreign tokens", () => {
  test.each([
    ["fewer than fifty show nothing", users(49, true), false],
    ["fifty do", users(50, true), true],
    [
      "one user's thousand tokens count once",
      [...users(49, false), ...Array(1000).fill(["one", true])],
      false,
    ],
    ["half is not most", [...users(50, false), ...users(50, true)], false],
    ["more than half is", [...users(49, false), ...users(51, true)], true],
    [
      "a user counts as responded about last",
      [...users(60, true, "user"), ...users(60, false, "user")],
      false,
    ],
    [
      "users of long ago are forgotten",
      [...users(1000, true), ...users(100, false), ...users(30, true)],
      false,
    ],
    ["also the good ones", [...users(1000, false), ...users(51, true)], true],
  ])("%s", (_, responses, isRefused) => {
    expect(judged(new RefusalJudge(), responses)).toBe(isRefused);
  });

  test("are judged anew", () => {
    const judge = new RefusalJudge();
    judged(judge, users(100, true));
    judge.clear();
    expect(judged(judge, users(49, true))).toBe(false);
  });
});
