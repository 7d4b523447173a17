/** HostProbes to a host that overlap, and replies that are late. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { ReplicationState } from "../../../src/platform/database/choose-primary.ts";
import { HostProbes } from "../../../src/platform/database/host-probes.ts";
import { a, primary, standby } from "../../support/cluster-hosts.ts";

/** A host whose probes are replied to when the test does so, in any order. */
function host() {
  const replies: PromiseWithResolvers<ReplicationState>[] = [];
  const heard: ReplicationState[] = [];
  const ask = () => {
    const reply = Promise.withResolvers<ReplicationState>();
    replies.push(reply);
    return reply.promise;
  };
  return { probes: new HostProbes(ask, (state) => void heard.push(state)), replies, heard };
}

describe("what a host said before", () => {
  const failed = (code: string) => Object.assign(new Error(`it failed with ${code}`), { code });

  /** Asked twice; the second question is replied to first. */
  async function overtaken(first: ReplicationState | Error, second: ReplicationState | Error) {
    const { probes, replies, heard } = host();
    const asked = [probes.probe(a)];
    await delay(1);
    asked.push(probes.probe(a));
    for (const [index, said] of [second, first].entries()) {
      const reply = replies[1 - index];
      if (said instanceof Error) reply?.reject(said);
      else reply?.resolve(said);
      await asked[1 - index];
    }
    return { before: probes.lastState(a), heard };
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

  test("does not count if it was asked for earlier than that", async () => {
    const { probes, replies } = host();
    const from = performance.now();
    await delay(1);
    const reply = probes.probe(a);
    await delay(1);
    const meanwhile = performance.now();
    replies[0]?.resolve(primary(1));
    await reply;
    expect(probes.lastState(a, from)).toEqual(primary(1));
    expect(probes.lastState(a, meanwhile)).toBeUndefined();
  });
});

describe("searches", () => {
  test("ask a host anew each, two probes at a time", async () => {
    const { probes, replies } = host();
    const [isOver, goesOn] = [new AbortController(), new AbortController()];
    const first = probes.probeInSearch(a, isOver.signal);
    const second = probes.probeInSearch(a, isOver.signal);
    const third = probes.probeInSearch(a, isOver.signal);
    const fourth = probes.probeInSearch(a, goesOn.signal);
    isOver.abort();
    await delay(1);
    expect(replies).toHaveLength(2);
    replies[1]?.resolve(standby());
    expect(await second).toMatchObject({ state: standby() });
    // Nobody waits for what it would say to the third.
    expect(await third).toBeUndefined();
    await delay(1);
    expect(replies).toHaveLength(3);
    replies[2]?.resolve(primary(1));
    expect(await fourth).toMatchObject({ state: primary(1) });
    replies[0]?.resolve(standby());
    expect(await first).toMatchObject({ state: standby() });
  });
});
