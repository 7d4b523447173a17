/**
 * Schemas as alternatives that can be compared keyword by keyword: references followed, unions and lists
 * of types spread, `allOf` merged. `{type: [string, "null"]}` and a `oneOf` of both give the same result.
 */
import type { Json, JsonObject } from "./document.ts";
import { arrayOf, entriesOf, follow, objectOf, stringsOf } from "./document.ts";

/** The alternatives of a schema; none if it admits nothing. Nested schemas are unchanged. */
export function alternatives(root: JsonObject, schema: Json): JsonObject[] {
  if (schema === false) return [];
  const { $ref, allOf, oneOf, anyOf, type, ...rest } = objectOf(schema);
  const types = Array.isArray(type) ? type : [type];
  const references = typeof $ref === "string" ? [[follow(root, $ref)]] : [];
  const all = arrayOf(allOf).map((part) => [part]);
  const unions = [oneOf, anyOf].filter((union) => union !== undefined).map(arrayOf);
  let plain: JsonObject[] = types.map((one: Json | undefined) => ofType(one, rest));
  for (const part of [...references, ...all, ...unions]) {
    const choices = part.flatMap((choice) => alternatives(root, choice));
    plain = plain.flatMap((schema) => choices.map((choice) => merge(schema, choice)));
  }
  return plain;
}

/** A schema with one type. For null, other keywords are dropped: they apply only to other types. */
function ofType(type: Json | undefined, rest: JsonObject): JsonObject {
  if (type === undefined) return rest;
  return type === "null" ? { type } : { ...rest, type };
}

/** Both schemas merged: properties and required names are combined; of other keywords in both, the second one counts. */
function merge(a: JsonObject, b: JsonObject): JsonObject {
  const properties: Record<string, Json> = Object.fromEntries(entriesOf(a["properties"]));
  for (const [name, property] of entriesOf(b["properties"])) {
    const other = properties[name];
    properties[name] = other === undefined ? property : { allOf: [other, property] };
  }
  const required = [...new Set([...stringsOf(a["required"]), ...stringsOf(b["required"])])];
  return { ...a, ...b, properties, required };
}
