/**
 * Rules that every document keeps, so that generators of many languages make working clients of it, and parsers
 * and linters of many kinds read it.
 */
import { describe, expect, it } from "vitest";
import { arrayOf, entriesOf, type Json, type JsonObject, objectOf } from "../../scripts/openapi/document.ts";
import { openapiDocuments } from "../support/openapi-documents.ts";

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

describe.each(openapiDocuments)("$name", ({ root, schemas }) => {
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

  it("states a pattern or a format of a text, never both: models hold what is formatted as another type", () => {
    const both = schemas.filter(({ schema }) => "pattern" in schema && "format" in schema);
    // What an app sends: the server takes less than the format, until the text has a rule of its own.
    const places = both.map(({ at }) => at).filter((at) => !at.endsWith("/DateTimeInput"));
    expect(places).toEqual([]);
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
