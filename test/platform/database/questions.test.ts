/** Questions to a host that overlap, and replies that are late. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { Standing } from "../../../src/platform/database/choose-primary.ts";
import { Questions } from "../../../src/platform/database/questions.ts";
import { a, primary, standby } from "../../support/cluster-hosts.ts";

describe("what a host said before", () => {
  const failed = (code: string) => Object.assign(new Error(`it failed with ${code}`), { code });

  /** A host whose questions are replied to when the test does so, in any order. */
  function host() {
    const replies: PromiseWithResolvers<Standing>[] = [];
    const heard: Standing[] = [];
    const ask = () => {
      const reply = Promise.withResolvers<Standing>();
      replies.push(reply);
      return reply.promise;
    };
    return { questions: new Questions(ask, (standing) => void heard.push(standing)), replies, heard };
  }

  /** Asked twice; the second question is replied to first. */
  async function overtaken(first: Standing | Error, second: Standing | Error) {
    const { questions, replies, heard } = host();
    const asked = [questions.ask(a)];
    await delay(1);
    asked.push(questions.ask(a));
    for (const [index, said] of [second, first].entries()) {
      const reply = replies[1 - index];
      if (said instanceof Error) reply?.reject(said);
      else reply?.resolve(said);
      await asked[1 - index];
    }
    return { before: questions.before(a), heard };
  }

  test("is not forgotten as a question from before it gets no connection", async () => {
    expect((await overtaken(failed("CONNECT_TIMEOUT"), primary(1))).before).toEqual(primary(1));
  });

  test("does not outlast a later question that gets none", async () => {
    const { before, heard } = await overtaken(primary(1), failed("ECONNREFUSED"));
    expect(before).toBeUndefined();
    // What it tells of timelines counts all the same.
    expect(heard).toEqual([primary(1)]);
  });

  test("is what it was asked for last", async () => {
    expect((await overtaken(standby(), primary(2))).before).toEqual(primary(2));
  });

  test("is taken over by the next search for three seconds, and then asked for anew", async () => {
    const { questions, replies } = host();
    const first = questions.askInSearch(a);
    expect(questions.askInSearch(a)).toBe(first);
    replies[0]?.resolve(standby());
    await first;
    expect(questions.askInSearch(a)).toBe(first);
    await delay(3_010);
    const second = questions.askInSearch(a);
    expect(second).not.toBe(first);
    replies[1]?.resolve(primary(1));
    questions.use(await second);
    expect(questions.askInSearch(a)).not.toBe(second);
    expect(replies).toHaveLength(3);
  });
});
