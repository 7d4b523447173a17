import { expect, test } from "vitest";
import { Failures } from "../../../src/auth/limits/failures.ts";

const counter = { rule: { name: "client", failures: 3, windowSeconds: 60 }, subject: "app" };

/** Counters whose calls are answered by the test. */
function controlled() {
  const calls: PromiseWithResolvers<undefined>[] = [];
  const count = () => {
    const call = Promise.withResolvers<undefined>();
    calls.push(call);
    return call.promise;
  };
  const next = () => calls.shift() ?? expect.fail("nothing is counted");
  return { failures: new Failures({ count }), next, calls };
}

/** Whether the promise is still pending once all that is due has happened. */
async function isPending(promise: Promise<void>): Promise<boolean> {
  const pending = new Promise<boolean>((resolve) => setImmediate(() => resolve(true)));
  return await Promise.race([
    promise.then(
      () => false,
      () => false,
    ),
    pending,
  ]);
}

test("what could not be counted is counted once, and all who ask meanwhile wait for it", async () => {
  const { failures, next, calls } = controlled();
  const lost = failures.count(counter);
  next().reject(new Error("away"));
  await expect(lost).rejects.toThrow("away");
  const first = failures.settle(counter);
  const second = failures.settle(counter);
  expect(await Promise.all([first, second].map(isPending))).toEqual([true, true]);
  expect(calls).toHaveLength(1);
  next().resolve(undefined);
  await Promise.all([first, second]);
  await failures.settle(counter);
  expect(calls).toHaveLength(0);
});

test("what cannot be settled is still owed, and no more than fills the counter", async () => {
  const { failures, next, calls } = controlled();
  const lost = Array.from({ length: 5 }, () => failures.count(counter));
  for (let n = 0; n < 5; n += 1) next().reject(new Error("away"));
  await Promise.allSettled(lost);
  const settling = failures.settle(counter);
  expect(calls).toHaveLength(counter.rule.failures);
  next().resolve(undefined);
  for (let n = 1; n < counter.rule.failures; n += 1) next().reject(new Error("away"));
  await expect(settling).rejects.toThrow("away");
  const again = failures.settle(counter);
  expect(calls).toHaveLength(counter.rule.failures - 1);
  while (calls.length > 0) next().resolve(undefined);
  await again;
});
