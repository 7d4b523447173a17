/** Settings that hold JSON. A problem never quotes the value, which may be a secret. */
import * as v from "valibot";
import { type Environment, must, type TextSchema, unquoted } from "./kinds.ts";

/** JSON that matches a schema, with the schema's defaults filled in. @param expects as in "a JSON array of clients" */
export function json<T>(expects: string, shape: v.GenericSchema<unknown, T>): TextSchema<T> {
  return v.pipe(
    v.string(),
    v.rawTransform(({ dataset, addIssue, NEVER }): unknown => {
      try {
        return JSON.parse(dataset.value);
      } catch (error) {
        // The engine's message quotes the text around the mistake, so only the position is used.
        const position = /at position (\d+)/.exec(String(error))?.[1];
        const where = position ? ` from character ${position} on` : "";
        addIssue({ message: `${must(expects)}, but is not JSON${where}` });
        return NEVER;
      }
    }),
    shape,
    v.description(expects),
    unquoted(),
  );
}

/** An object; other members are dropped. */
export function object<const Entries extends v.ObjectEntries>(expects: string, entries: Entries) {
  return v.pipe(plainObject(expects), v.object(entries, "is missing"));
}

/** An object with no other members than these. */
export function exactObject<const Entries extends v.ObjectEntries>(expects: string, entries: Entries) {
  return v.pipe(
    plainObject(expects),
    // Valibot's strictObject reports only the first unknown member.
    v.objectWithRest(entries, v.never("is not known"), missingOf(entries)),
    v.transform((value): v.InferOutput<v.ObjectSchema<Entries, undefined>> => value),
  );
}

/** Of the member at the end of an issue's path. */
function missingOf(entries: v.ObjectEntries): (issue: v.BaseIssue<unknown>) => string {
  return ({ path = [] }) => {
    const schema = entries[String(path.at(-1)?.key)];
    const expects = schema && v.getDescription(schema);
    return expects === undefined ? "is missing" : `is missing; it ${must(expects)}`;
  };
}

/** An object that is not an array: Valibot's object schema accepts arrays too. */
function plainObject(expects: string) {
  return v.custom<object>(
    (value) => typeof value === "object" && value !== null && !Array.isArray(value),
    must(expects),
  );
}

export function distinct<T>(expects: string, item: v.GenericSchema<unknown, T>) {
  return v.pipe(
    v.array(item, must(expects)),
    v.check((values) => new Set(values).size === values.length, "must not name the same twice"),
  );
}

const secretsExpected = "a secret, or an array of one or two different ones";

/** One secret, or two while one replaces the other, as a list. */
export function secrets(secret: v.GenericSchema<unknown, string>) {
  const list = v.pipe(
    distinct(secretsExpected, secret),
    v.minLength(1, must(secretsExpected)),
    v.maxLength(2, must(secretsExpected)),
  );
  return v.lazy((value) =>
    Array.isArray(value)
      ? list
      : v.pipe(
          secret,
          v.transform((one): string[] => [one]),
        ),
  );
}

/** The text of {@link secrets}: one secret, or an array in JSON, as its first visible `[` says. */
export function overlapping(secret: (environment: Environment) => TextSchema<string>) {
  return (environment: Environment): TextSchema<readonly string[]> => {
    const one = secret(environment);
    const single = v.pipe(
      v.string(),
      v.transform((text): unknown => text),
      secrets(one),
    );
    const list = json(secretsExpected, secrets(one));
    return v.pipe(
      v.string(),
      v.lazy((text): TextSchema<string[]> => (String(text).trimStart().startsWith("[") ? list : single)),
      v.description(`${v.getDescription(one)}; or a JSON array of two, while one replaces the other`),
    );
  };
}

/** Refuses an array in which two items have the same value of a member. @param array path of the array */
export function differingIn<Item>(member: keyof Item & string, array = "") {
  return v.rawCheck<Item[]>(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    const firstOf = new Map<unknown, number>();
    for (const [index, item] of dataset.value.entries()) {
      const first = firstOf.get(item[member]);
      if (first === undefined) firstOf.set(item[member], index);
      else addIssue({ message: `${array}[${index}].${member} is also that of ${array}[${first}]` });
    }
  });
}

export function only<const T extends string>(word: T) {
  return v.literal(word, must(word));
}
