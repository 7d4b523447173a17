/** The OpenAPI documents of this repository, and every schema in them. */
import { globSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import { parse } from "yaml";
import {
  arrayOf,
  entriesOf,
  follow,
  type Json,
  type JsonObject,
  objectOf,
  referenceOf,
} from "../../scripts/openapi/document.ts";

/** A schema and where it stands: a name of the document, then a JSON pointer. */
export interface PlacedSchema {
  readonly at: string;
  readonly schema: JsonObject;
}

export interface OpenapiDocument {
  /** File in openapi/, without its ending. */
  readonly name: string;
  readonly root: JsonObject;
  /** Every schema of the document, nested ones included, each once. */
  readonly schemas: readonly PlacedSchema[];
}

/** Keywords whose value is a schema, a list of schemas, or a table of schemas. */
const oneSchema = ["items", "additionalProperties", "unevaluatedProperties", "propertyNames", "contains"];
const conditions = ["if", "then", "else", "not"];
const lists = ["oneOf", "anyOf", "allOf", "prefixItems"];
const tables = ["properties", "patternProperties", "dependentSchemas"];

/** The schemas directly within a schema; references are not followed. */
export function partsOf({ at, schema }: PlacedSchema): PlacedSchema[] {
  const placed = (key: string, value: Json | undefined): PlacedSchema[] =>
    typeof value === "object" ? [{ at: `${at}/${key}`, schema: objectOf(value) }] : [];
  return [
    ...[...oneSchema, ...conditions].flatMap((key) => placed(key, schema[key])),
    ...lists.flatMap((key) => arrayOf(schema[key]).flatMap((each, index) => placed(`${key}/${index}`, each))),
    ...tables.flatMap((key) =>
      entriesOf(schema[key]).flatMap(([name, each]) => placed(`${key}/${name}`, each)),
    ),
  ];
}

/** The schema and all within it; references are not followed. */
export function withParts(schema: PlacedSchema): PlacedSchema[] {
  return [schema, ...partsOf(schema).flatMap(withParts)];
}

/** The schemas of parameters, headers and media types in this part of a document; examples have none. */
export function schemasIn(at: string, value: Json | undefined): PlacedSchema[] {
  if (Array.isArray(value)) return value.flatMap((each, index) => schemasIn(`${at}/${index}`, each));
  return entriesOf(value).flatMap(([key, each]) => {
    if (key === "example" || key === "examples") return [];
    const here = `${at}/${key}`;
    return key === "schema" ? [{ at: here, schema: objectOf(each) }] : schemasIn(here, each);
  });
}

/** These schemas, all within them, and all that they refer to, each once. */
export function closureOf(root: JsonObject, schemas: readonly PlacedSchema[]): PlacedSchema[] {
  const found = new Map<JsonObject, PlacedSchema>();
  const pending = schemas.flatMap(withParts);
  for (let next = pending.pop(); next; next = pending.pop()) {
    if (found.has(next.schema)) continue;
    found.set(next.schema, next);
    const reference = referenceOf(next.schema);
    if (reference === undefined) continue;
    pending.push(...withParts({ at: reference, schema: objectOf(follow(root, reference)) }));
  }
  return [...found.values()];
}

/** @param name that the places of its schemas begin with */
export function openapiDocument(name: string, root: JsonObject): OpenapiDocument {
  const { schemas, ...components } = objectOf(root["components"]);
  const named = entriesOf(schemas).map(([key, schema]) => ({
    at: `${name}#/components/schemas/${key}`,
    schema: objectOf(schema),
  }));
  const others = [
    ...schemasIn(`${name}#/components`, components),
    ...schemasIn(`${name}#/paths`, root["paths"]),
  ];
  return { name, root, schemas: [...named, ...others].flatMap(withParts) };
}

/** All documents of openapi/. */
export const openapiDocuments: readonly OpenapiDocument[] = globSync("openapi/*.yaml")
  .sort()
  .map((file) =>
    openapiDocument(
      basename(file, ".yaml"),
      parse(readFileSync(new URL(`../../${file}`, import.meta.url), "utf8")),
    ),
  );
