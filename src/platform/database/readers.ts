/**
 * Readers of what the database answers where no column says it: computed expressions and JSON. Each looks at the
 * value before it calls it by a type, so that a statement and its reader cannot drift apart unnoticed.
 */

/** Reads a value that a driver answered. */
export interface Reader<T> {
  /** @throws UnexpectedAnswerError */
  read(value: unknown): T;
}

/** What a reader makes of its values. */
export type ReadBy<R> = R extends Reader<infer T> ? T : never;

/** A statement answered something else than was expected of it. */
export class UnexpectedAnswerError extends Error {
  override readonly name = "UnexpectedAnswerError";

  constructor(expected: string, value: unknown) {
    super(`the database answered ${value === null ? "null" : typeof value} in place of ${expected}`);
  }
}

function checked<T>(expected: string, isExpected: (value: unknown) => value is T): Reader<T> {
  return {
    read(value) {
      if (isExpected(value)) return value;
      throw new UnexpectedAnswerError(expected, value);
    },
  };
}

export const text = checked("a text", (value) => typeof value === "string");
export const boolean = checked("a boolean", (value) => typeof value === "boolean");
/** A `float8`, an `int`, or a number of JSON. */
export const number = checked("a number", (value) => typeof value === "number");
/** An `int`, or an integer of JSON; a `bigint` is a text to one of the drivers, and is read by its column. */
export const integer = checked("an integer", (value): value is number => Number.isSafeInteger(value));
/** One of these texts. */
export function oneOf<const T extends string>(values: readonly T[]): Reader<T> {
  return checked(`one of ${values.join(", ")}`, (value): value is T => values.some((one) => one === value));
}

/** The same, or null. */
export function nullable<T>(reader: Reader<T>): Reader<T | null> {
  return { read: (value) => (value === null ? null : reader.read(value)) };
}

/** An array of JSON. */
export function listOf<T>(reader: Reader<T>): Reader<T[]> {
  return {
    read(value) {
      if (!Array.isArray(value)) throw new UnexpectedAnswerError("a list", value);
      return value.map((one) => reader.read(one));
    },
  };
}
