/** Keeps the log short while one error comes again and again: its stack is written once a minute. */
import { Reminders } from "../base/reminders.ts";

/** @returns {@link withoutRepeatedStacks} of one log @param now milliseconds since any fixed point */
export function limitStacks(now?: () => number) {
  const reminders = new Reminders(now, 60_000);

  /**
   * The fields of a line, as redaction.ts has made them. If the stack of its error was written within a minute, the line
   * has none, and says in `repeats` how many there were without. Errors are the same if their innermost causes are.
   */
  return function withoutRepeatedStacks(fields: unknown): unknown {
    if (!isObject(fields) || !("err" in fields) || !isObject(fields.err)) return fields;
    const repeats = reminders.repeats(keyOf(fields.err));
    return repeats === 0 ? fields : { ...fields, err: withoutStacks(fields.err), repeats };
  };
}

/** What it is, and where it was thrown; numbers in messages, such as durations, make no other error. */
function keyOf(error: object): string {
  if ("cause" in error && isObject(error.cause)) return keyOf(error.cause);
  const { type, code, message, stack }: Readonly<Record<string, unknown>> = { ...error };
  const [thrownAt] = String(stack).split("\n");
  return [type, code, String(message).replaceAll(/\d+/g, "0"), thrownAt].join("\n");
}

function withoutStacks(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutStacks);
  if (!isObject(value)) return value;
  const members = Object.entries(value).filter(([name]) => name !== "stack");
  return Object.fromEntries(members.map(([name, member]) => [name, withoutStacks(member)]));
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
