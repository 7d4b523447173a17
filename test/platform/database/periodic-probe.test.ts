/** Looks at a host, as long as somebody needs them. */
import { setTimeout as delay } from "node:timers/promises";
import { expect, test } from "vitest";
import { PeriodicProbe } from "../../../src/platform/database/periodic-probe.ts";
import { waitFor } from "../../support/wait-for.ts";

/** The replies of a host that is looked at, each of which comes when the test says so. */
function watched() {
  const looks: PromiseWithResolvers<void>[] = [];
  let isNeeded = true;
  const watch = new PeriodicProbe(
    () => {
      const look = Promise.withResolvers<void>();
      looks.push(look);
      return look.promise;
    },
    () => isNeeded,
  );
  const leave = () => {
    isNeeded = false;
  };
  return { looks, leave, ended: watch.start() };
}

test("no look begins after the pause in which the last one who needs it has left", async () => {
  const { looks, leave, ended } = watched();
  await waitFor(() => expect(looks).toHaveLength(1), 5);
  leave();
  await ended;
  expect(looks).toHaveLength(1);
});

test("nor when an earlier one ends, for which it has waited", async () => {
  const { looks, leave, ended } = watched();
  await waitFor(() => expect(looks).toHaveLength(2), 5);
  // Longer than the pause between two.
  await delay(1_100);
  leave();
  looks[0]?.resolve();
  await ended;
  expect(looks).toHaveLength(2);
});
