import { expect, test } from "vitest";
import { joined } from "../../../src/auth/limits/database-counters.ts";

/** Work that ends when it is told to. */
function heldWork() {
  const begun: { key: string; calls: number; end: (result: string) => void; fail: (error: Error) => void }[] =
    [];
  const call = joined(
    (key: string) => key,
    (key, calls) =>
      new Promise<string>((resolve, reject) => {
        begun.push({ key, calls, end: resolve, fail: reject });
      }),
  );
  return { begun, call };
}

test("calls that come while work for their key is under way share the next, each with its ordinal", async () => {
  const { begun, call } = heldWork();
  const [first, second, third, other] = [call("a"), call("a"), call("a"), call("b")];
  expect(begun).toMatchObject([
    { key: "a", calls: 1 },
    { key: "b", calls: 1 },
  ]);
  begun[0]?.end("one");
  expect(await first).toEqual({ result: "one", ordinal: 0 });
  expect(begun[2]).toMatchObject({ key: "a", calls: 2 });
  const late = call("a");
  begun[2]?.end("two");
  expect(await Promise.all([second, third])).toEqual([
    { result: "two", ordinal: 0 },
    { result: "two", ordinal: 1 },
  ]);
  begun[3]?.end("three");
  expect(await late).toEqual({ result: "three", ordinal: 0 });
  begun[1]?.end("other");
  expect(await other).toEqual({ result: "other", ordinal: 0 });
});

test("work that fails fails its calls, and no later ones", async () => {
  const { begun, call } = heldWork();
  const [first, second] = [call("a"), call("a")];
  begun[0]?.fail(new Error("cut off"));
  await expect(first).rejects.toThrow("cut off");
  begun[1]?.end("done");
  expect(await second).toEqual({ result: "done", ordinal: 0 });
  const after = call("a");
  begun[2]?.end("again");
  expect(await after).toEqual({ result: "again", ordinal: 0 });
});
