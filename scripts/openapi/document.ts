/**
 * An OpenAPI document as plain JSON, for comparing two of them: how to look into it without trusting its
 * shape, and how to follow its references. Knows nothing of what a document means.
 */

/** Any JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | JsonObject;

/** A JSON object; a member that is not there is `undefined`. */
export interface JsonObject {
  readonly [name: string]: Json | undefined;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value if it is an object, else an empty one: a part that is absent is compared as one without members. */
export function objectOf(value: Json | undefined): JsonObject {
  return isObject(value) ? value : {};
}

/** The value if it is an array, else an empty one. */
export function arrayOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : [];
}

/** The members of an object that are there. */
export function entriesOf(value: Json | undefined): [string, Json][] {
  return Object.entries(objectOf(value)).flatMap(([name, member]) =>
    member === undefined ? [] : [[name, member] satisfies [string, Json]],
  );
}

/** The strings in an array. */
export function stringsOf(value: Json | undefined): string[] {
  return arrayOf(value).filter((item) => typeof item === "string");
}

/** Where `$ref` of a value points to, if it has one. */
export function referenceOf(value: Json | undefined): string | undefined {
  const reference = objectOf(value)["$ref"];
  return typeof reference === "string" ? reference : undefined;
}

/** What a reference within the document points to; throws on one that leads elsewhere or nowhere. */
export function follow(root: JsonObject, reference: string): Json {
  const [document, ...steps] = reference.split("/");
  let value: Json | undefined = document === "#" ? root : undefined;
  for (const step of steps) {
    const name = decodeURIComponent(step).replaceAll("~1", "/").replaceAll("~0", "~");
    value = objectOf(value)[name];
  }
  if (value === undefined) throw new Error(`${reference} leads nowhere within the document.`);
  return value;
}

/** The object itself, or what its references lead to in the end. Siblings of a `$ref` are left out. */
export function resolveObject(root: JsonObject, value: Json | undefined): JsonObject {
  let current = value;
  for (let hops = 0; hops < 32; hops++) {
    const reference = referenceOf(current);
    if (reference === undefined) return objectOf(current);
    current = follow(root, reference);
  }
  throw new Error(`${referenceOf(value)} leads in a circle.`);
}
