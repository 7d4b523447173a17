/**
 * Rules that every document keeps, so that generators of many languages make working clients of it, and parsers
 * and linters of many kinds read it.
 */
import { describe, expect, it } from "vitest";
import { arrayOf, entriesOf, type Json, type JsonObject, objectOf } from "../../scripts/openapi/document.ts";
import { closureOf, openapiDocuments, type PlacedSchema, schemasIn } from "../support/openapi-documents.ts";

/** The form in which two names meet: generators change case and leave separators out. */
const bare = (name: string) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

/** Names that meet another one, each with its owners. */
function meetings(names: readonly (readonly [name: string, owner: string])[]): string[][] {
  const groups = Map.groupBy(names, ([name]) => bare(name));
  return [...groups.values()]
    .map((group) => group.map(([name, owner]) => `${owner} ${name}`))
    .filter((group) => group.length > 1);
}

/** Every object of a document, with the key that it stands under. */
function objectsOf(value: Json | undefined, key = ""): [string, JsonObject][] {
  if (Array.isArray(value)) return value.flatMap((each) => objectsOf(each, key));
  const own: [string, JsonObject][] =
    typeof value === "object" && value !== null ? [[key, objectOf(value)]] : [];
  return [...own, ...entriesOf(value).flatMap(([name, each]) => objectsOf(each, name))];
}

describe("names that meet", () => {
  it("are found whatever their case and separators", () => {
    const names = ["IdentityId", "identity_id", "Identity-ID", "Other"].map((name) => [name, "of"] as const);
    expect(meetings(names)).toEqual([["of IdentityId", "of identity_id", "of Identity-ID"]]);
  });
});

/** The schemas of everything that a document says of responses. */
function responseSchemas(name: string, root: JsonObject): PlacedSchema[] {
  const tables = objectsOf(root).filter(([key]) => key === "responses");
  return tables.flatMap(([, responses]) => schemasIn(`${name}#…/responses`, responses));
}

/** Names that a library or a language has already, or that say too little beside other packages. */
const general =
  /^(new.*|token|page|size|sort|error|code|key|keys|message|messages|date|datetime|time|type|status|result|request|response|object|list|map|set|client|server|progress)$/i;

describe.each(openapiDocuments)("$name", ({ name, root, schemas }) => {
  const components = entriesOf(root["components"]);
  const operations = entriesOf(root["paths"]).flatMap(([, item]) =>
    entriesOf(item).flatMap(([, operation]) => objectOf(operation)["operationId"] ?? []),
  );

  it("gives no two components one name, of whatever kinds they are", () => {
    const names = components.flatMap(([kind, table]) =>
      entriesOf(table).map(([name]) => [name, kind] as const),
    );
    expect(names.length).toBeGreaterThan(10);
    expect(meetings(names)).toEqual([]);
  });

  it("names no component as generators name the parts of an operation", () => {
    const parts = ["", "Params", "Parameters", "Request", "RequestBody", "JSONBody", "Response", "Result"];
    const taken = new Set(operations.flatMap((id) => parts.map((part) => bare(`${id}${part}`))));
    const names = components.flatMap(([, table]) => entriesOf(table).map(([name]) => name));
    expect(operations.length).toBeGreaterThan(2);
    expect(names.filter((name) => taken.has(bare(name)))).toEqual([]);
  });

  it("gives no schema a general name, nor that of a constructor", () => {
    const names = Object.keys(objectOf(objectOf(root["components"])["schemas"]));
    expect(names.length).toBeGreaterThan(5);
    expect(names.filter((name) => general.test(name))).toEqual([]);
  });

  it("has no two members of a schema with one name", () => {
    const same = schemas.flatMap(({ at, schema }) =>
      meetings(Object.keys(objectOf(schema["properties"])).map((name) => [name, at] as const)),
    );
    expect(same).toEqual([]);
  });

  it("names every object with members and every list of values, so that generators need not", () => {
    // What `not` excludes is no type of its own.
    const isNamed = (at: string) => /#\/components\/schemas\/[^/]+(?:\/not)?$/.test(at);
    const nameless = schemas.filter(
      ({ at, schema }) => !isNamed(at) && ("properties" in schema || "enum" in schema),
    );
    expect(nameless.map(({ at }) => at)).toEqual([]);
  });

  it("has no unions but with null, and none of constants", () => {
    const unions = schemas.flatMap(({ at, schema: { oneOf, anyOf, allOf, type } }) =>
      [oneOf, anyOf, allOf, Array.isArray(type) ? type : undefined].map((union) => ({
        at,
        others: arrayOf(union).filter((one) => one !== "null" && objectOf(one)["type"] !== "null"),
      })),
    );
    expect(unions.filter(({ others }) => others.length > 1)).toEqual([]);
    const booleans = schemas.filter(({ schema: { const: value, enum: values } }) =>
      [value, ...arrayOf(values)].some((each) => typeof each === "boolean"),
    );
    expect(booleans.map(({ at }) => at)).toEqual([]);
  });

  it("has patterns that linear-time engines know (RE2, Rust): no look-around, no back reference", () => {
    const unknown = schemas.flatMap(({ at, schema: { pattern, patternProperties } }) =>
      [pattern ?? "", ...Object.keys(objectOf(patternProperties))]
        .filter((each) => /\(\?<?[=!]|\\[1-9]|\\k</.test(String(each)))
        .map(() => at),
    );
    expect(unknown).toEqual([]);
  });

  it("says of integers in responses how large they get", () => {
    const unbounded = closureOf(root, responseSchemas(name, root)).filter(
      ({ schema: { type, format, maximum } }) =>
        [type].flat().includes("integer") && format !== "int64" && !(Number(maximum) < 2 ** 31),
    );
    expect(unbounded.map(({ at }) => at)).toEqual([]);
  });

  it("has open responses: a client goes on working when a member is added", () => {
    const objects = closureOf(root, responseSchemas(name, root)).filter(
      ({ schema }) => "properties" in schema,
    );
    expect(objects.length).toBeGreaterThan(2);
    const shut = objects.filter(
      ({ schema }) => schema["additionalProperties"] === false || "unevaluatedProperties" in schema,
    );
    expect(shut.map(({ at }) => at)).toEqual([]);
  });

  it("has closed JSON bodies of requests: a member that is not known is refused", () => {
    const contents = objectsOf(root["paths"])
      .filter(([key]) => key === "requestBody")
      .map(([, body]) => objectOf(body["content"]));
    const json = contents.flatMap((content) => schemasIn("", objectOf(content["application/json"])));
    const objects = closureOf(root, json).filter(({ schema }) => "properties" in schema);
    expect(objects.length).toBeGreaterThan(1);
    expect(
      objects.filter(({ schema }) => schema["additionalProperties"] !== false).map(({ at }) => at),
    ).toEqual([]);
  });

  it("names one server, at a plain address, for all of its paths", () => {
    const servers = objectsOf(root).flatMap(([, { servers: some }]) => arrayOf(some));
    expect(servers).toHaveLength(1);
    expect(objectOf(servers[0])["url"]).toMatch(/^http:\/\/[^{}]+$/);
  });

  it("states a pattern or a format of a text, never both: models hold what is formatted as another type", () => {
    const both = schemas.filter(({ schema }) => "pattern" in schema && "format" in schema);
    expect(both.map(({ at }) => at)).toEqual([]);
  });

  it("has bodies of links that are texts, as generators and validators refuse objects", () => {
    const links = objectsOf(root)
      .filter(([key]) => key === "links")
      .flatMap(([, each]) => entriesOf(each));
    const bodies = links.map(([, link]) => objectOf(link)["requestBody"] ?? "");
    expect(bodies.filter((body) => typeof body !== "string")).toEqual([]);
  });

  it("lists one media type for each body, as clients that see two label one as the other", () => {
    const contents = objectsOf(root)
      .filter(([key]) => key === "content")
      .map(([, content]) => Object.keys(content))
      .filter((keys) => keys.every((key) => key.includes("/")));
    expect(contents.length).toBeGreaterThan(5);
    expect(contents.filter((types) => types.length !== 1)).toEqual([]);
    for (const [, { "x-also-accepts": more }] of objectsOf(root)) {
      for (const type of arrayOf(more)) expect(type).toMatch(/^[a-z]+\/[a-z0-9.+-]+$/);
    }
  });
});

/** A contract that others implement is its own; what the two services share is the same in both. */
it("defines alike what the documents of both services have under one name", () => {
  const [auth, push] = ["auth", "push-orchestration"].map((wanted) =>
    objectOf(openapiDocuments.find(({ name }) => name === wanted)?.root["components"]),
  );
  const shared = ["schemas", "parameters", "headers"].flatMap((kind) => {
    const [ours, theirs] = [objectOf(auth?.[kind]), objectOf(push?.[kind])];
    return Object.keys(ours)
      .filter((name) => name in theirs)
      .map((name) => ({ name, ours: ours[name], theirs: theirs[name] }));
  });
  expect(shared.map(({ name }) => name)).toEqual(
    expect.arrayContaining(["Problem", "ProblemCode", "ProblemError", "RequestId", "TraceParent"]),
  );
  for (const { name, ours, theirs } of shared) expect(theirs, name).toEqual(ours);
});
