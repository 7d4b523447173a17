/** Closes schemas of responses, which are open for clients, for the check that nothing undescribed is sent. */

type Schema = Readonly<Record<string, unknown>>;

/** Keywords that apply to the same value: what they describe counts as described by the schema around them. */
const inPlace = ["allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"];
/** Keywords that apply to parts of the value. */
const ofParts = ["properties", "patternProperties", "items", "prefixItems", "additionalProperties"];

function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Applies `change` to a schema, to each of a list, or to each of a table. */
function eachOf(keyword: string, value: unknown, change: (schema: unknown) => unknown): unknown {
  if (Array.isArray(value)) return value.map(change);
  const isTable = ["properties", "patternProperties", "dependentSchemas"].includes(keyword);
  if (!isTable || !isObject(value)) return change(value);
  return Object.fromEntries(Object.entries(value).map(([name, schema]) => [name, change(schema)]));
}

/** @param isPart whether the schema describes a value of its own, and not one that a schema around it describes */
function closing(schema: unknown, isPart: boolean): unknown {
  if (!isObject(schema)) return schema;
  const entries = Object.entries(schema).map(([keyword, value]) => {
    if (inPlace.includes(keyword)) return [keyword, eachOf(keyword, value, (each) => closing(each, false))];
    if (ofParts.includes(keyword)) return [keyword, eachOf(keyword, value, (each) => closing(each, true))];
    return [keyword, value];
  });
  const copy = Object.fromEntries(entries);
  const says = "additionalProperties" in schema || "unevaluatedProperties" in schema;
  const hasMembers = "properties" in schema || inPlace.some((keyword) => keyword in schema);
  return isPart && hasMembers && !says ? { ...copy, unevaluatedProperties: false } : copy;
}

/** A copy of the schema in which no object may have undescribed members, unless none is, or it says so itself. */
export function closed(schema: object): object {
  return Object(closing(schema, true));
}

/** A copy of the document in which all schemas with a name are closed. */
export function withClosedSchemas<T extends { readonly components?: object }>(document: T): T {
  const components: Schema = { ...document.components };
  const schemas = eachOf("properties", components["schemas"], (schema) => closing(schema, true));
  return { ...document, components: { ...components, schemas } };
}
