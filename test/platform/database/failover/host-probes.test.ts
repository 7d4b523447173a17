/** HostProbes to a host that overlap, and responses that are late. */
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import type { ReplicationState } from "../../../../src/platform/database/connections/replication-state.ts";
import { HostProbes } from "../../../../src/platform/database/failover/host-probes.ts";
import { a, primary, standby } from "../../../support/cluster-hosts.ts";

/** A host whose probes are replied to when the test does so, in any order. */
function host() {
  const responses: PromiseWithResolvers<ReplicationState>[] = [];
  const states: ReplicationState[] = [];
  const ask = () => {
    const response = Promise.withResolvers<ReplicationState>();
    responses.push(response);
    return response.promise;
  };
  return { probes: new HostProbes(ask, (state) => void states.push(state)), responses, states };
}

describe("the last state of a host", () => {
  const failed = (code: string) => Object.assign(new Error(`it failed with ${code}`), { code });

  /** The host is probed twice, and responds to the second probe first. */
  async function overtaken(first: ReplicationState | Error, second: ReplicationState | Error) {
    const { probes, responses, states } = host();
    const probed = [probes.probe(a)];
    await delay(1);
    probed.push(probes.probe(a));
    for (const [index, said] of [second, first].entries()) {
      const response = responses[1 - index];
      if (said instanceof Error) response?.reject(said);
      else response?.resolve(said);
      await probed[1 - index];
    }
    return { before: probes.lastState(a), states };
  }

  test("is not forgotten when an earlier probe gets no connection", async () => {
    expect((await overtaken(failed("CONNECT_TIMEOUT"), primary(1))).before).toEqual(primary(1));
  });

  test("does not outlast a later probe that gets none", async () => {
    const { before, states } = await overtaken(primary(1), failed("ECONNREFUSED"));
    expect(before).toBeUndefined();
    // Its timeline is recorded all the same.
    expect(states).toEqual([primary(1)]);
  });

  test("is that of the probe that began last", async () => {
    expect((await overtaken(standby(), primary(2))).before).toEqual(primary(2));
  });

  test("does not count if its probe began earlier than that", async () => {
    const { probes, responses } = host();
    const from = performance.now();
    await delay(1);
    const probe = probes.probe(a);
    await delay(1);
    const meanwhile = performance.now();
    responses[0]?.resolve(primary(1));
    await probe;
    expect(probes.lastState(a, from)).toEqual(primary(1));
    expect(probes.lastState(a, meanwhile)).toBeUndefined();
  });
});

describe("searches", () => {
  test("ask a host anew each, two probes at a time", async () => {
    const { probes, responses } = host();
    const [isOver, goesOn] = [new AbortController(), new AbortController()];
    const first = probes.probeInSearch(a, isOver.signal);
    const second = probes.probeInSearch(a, isOver.signal);
    const third = probes.probeInSearch(a, isOver.signal);
    const fourth = probes.probeInSearch(a, goesOn.signal);
    isOver.abort();
    await delay(1);
    expect(responses).toHaveLength(2);
    responses[1]?.resolve(standby());
    expect(await second).toMatchObject({ state: standby() });
    // The search of the third is over before it begins.
    expect(await third).toBeUndefined();
    await delay(1);
    expect(responses).toHaveLength(3);
    responses[2]?.resolve(primary(1));
    expect(await fourth).toMatchObject({ state: primary(1) });
    responses[0]?.resolve(standby());
    expect(await first).toMatchObject({ state: standby() });
  });
});
