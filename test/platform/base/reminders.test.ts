import { expect, it } from "vitest";
import { Reminders } from "../../../src/platform/base/reminders.ts";

it("is due at once, and then at pauses that grow to a minute, each text by itself", () => {
  let now = 0;
  const reminders = new Reminders(() => now);
  const due: number[] = [];
  for (; now <= 240_000; now += 1_000) if (reminders.isDue("away")) due.push(now / 1_000);
  expect(due).toEqual([0, 5, 15, 35, 75, 135, 195]);
  expect(reminders.isDue("another")).toBe(true);
  expect(reminders.isDue("another")).toBe(false);
});

it("takes failures for the same by message and cause", () => {
  const reminders = new Reminders(() => 0);
  const failed = (cause: string) => new Error("Failed query", { cause: new Error(cause) });
  const due = [failed("refused"), failed("refused"), failed("timeout"), new Error("timeout"), "timeout"];
  expect(due.map((failure) => reminders.isFailureDue(failure))).toEqual([true, false, true, true, true]);
});
