/** Probes of a host, for as long as they are needed. */
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { PeriodicProbe } from "../../../../src/platform/database/failover/periodic-probe.ts";
import { waitFor } from "../../../support/wait-for.ts";

/** Probes of a host, each of which ends when the test says so. */
function probing() {
  const probes: PromiseWithResolvers<void>[] = [];
  let isNeeded = true;
  const periodic = new PeriodicProbe(
    () => {
      const probe = Promise.withResolvers<void>();
      probes.push(probe);
      return probe.promise;
    },
    () => isNeeded,
  );
  const leave = () => {
    isNeeded = false;
  };
  return { probes, leave, ended: periodic.start() };
}

test("no probe begins after the pause in which the last one who needs it has left", async () => {
  const { probes, leave, ended } = probing();
  await waitFor(() => expect(probes).toHaveLength(1), 5);
  leave();
  await ended;
  expect(probes).toHaveLength(1);
});

test("nor when an earlier one ends, for which it has waited", async () => {
  const { probes, leave, ended } = probing();
  await waitFor(() => expect(probes).toHaveLength(2), 5);
  // Longer than the pause between two.
  await delay(1_100);
  leave();
  probes[0]?.resolve();
  await ended;
  expect(probes).toHaveLength(2);
});
