/**
 * Whether a schema can replace another one without breaking clients. One schema must contain the other, and the
 * direction decides which:
 *
 *   in requests   every value that was accepted must still be accepted: before within after
 *   in responses  every value that is sent must have been possible before: after within before
 *
 * There are three special cases. A removed property breaks in both directions, since some client may read or send
 * it. A new property breaks in neither, unless a request must carry it. A new value in a response breaks nobody where
 * `x-only-with-header` lists it under a request header that is new too: no client of the older document sends it.
 *
 * Where containment cannot be decided (a pattern that changed, `not`, `if`), a change counts as breaking:
 * it can be declared, while a silent break cannot be taken back.
 */
import { isDeepStrictEqual } from "node:util";
import type { Json, JsonObject } from "./document.ts";
import { arrayOf, entriesOf, objectOf, referenceOf, resolveObject, stringsOf } from "./document.ts";
import { operationsOf } from "./operations.ts";
import { alternatives } from "./schema-alternatives.ts";

/** Where a value is sent. */
export type Direction = "request" | "response";

/** A change that breaks: the place, from the nearest named schema on, and what happened there. */
export interface Finding {
  readonly at: string;
  readonly what: string;
}

const LOWER_BOUNDS = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"];
const UPPER_BOUNDS = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"];
const UNDECIDABLE = [
  ...["pattern", "format", "multipleOf", "uniqueItems", "contentEncoding", "contentMediaType"],
  ...["not", "if", "then", "else", "contains", "prefixItems", "unevaluatedItems", "unevaluatedProperties"],
  ...["patternProperties", "propertyNames", "dependentRequired", "dependentSchemas"],
];

/** Compares the schemas of two versions of a document that travel in one direction. */
export class SchemaComparison {
  readonly #before: JsonObject;
  readonly #after: JsonObject;
  readonly #direction: Direction;
  /** The parameters of all operations of the older document. */
  readonly #knownParameters: ReadonlySet<string>;
  /** Results so far. They also end the recursion in schemas that contain themselves. */
  readonly #known = new Map<string, readonly Finding[]>();

  constructor(before: JsonObject, after: JsonObject, direction: Direction) {
    this.#before = before;
    this.#after = after;
    this.#direction = direction;
    const operations = [...operationsOf(before).values()];
    this.#knownParameters = new Set(operations.flatMap(({ parameters }) => [...parameters.keys()]));
  }

  /** The breaking changes from one schema to the other; an absent schema allows anything. */
  compare(before: Json = true, after: Json = true): readonly Finding[] {
    const key = JSON.stringify([before, after]);
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    this.#known.set(key, []);
    const name = (referenceOf(after) ?? referenceOf(before))?.split("/").at(-1) ?? "";
    const findings = below(name, this.#contain(before, after));
    this.#known.set(key, findings);
    return findings;
  }

  /** Every alternative of the inner side must find one on the outer side that admits it. */
  #contain(before: Json, after: Json): Finding[] {
    const [inner, outer] = this.#inDirection(
      alternatives(this.#before, before),
      alternatives(this.#after, after),
    );
    const ofType = (schemas: JsonObject[], type: Json | undefined): JsonObject[] =>
      schemas.filter((schema) => schema["type"] === type);
    return inner.flatMap((alternative) => {
      if (outer.some((candidate) => this.#admits(alternative, candidate).length === 0)) return [];
      const { type } = alternative;
      const [mine, theirs] = [ofType(inner, type).length, ofType(outer, type)];
      if (inner.length === 1 && outer.length === 1)
        return outer.flatMap((only) => this.#admits(alternative, only));
      // Both sides have the same number of this type, so one of them has changed: the most similar one.
      const attempts = theirs.map((candidate) => this.#admits(alternative, candidate));
      const nearest = attempts.sort((one, other) => one.length - other.length)[0];
      const lost = `an alternative of type ${type ?? "any"} ${this.#request ? "removed" : "added"}`;
      return nearest === undefined || mine > theirs.length ? [{ at: "", what: lost }] : nearest;
    });
  }

  /** Why `outer` does not admit every value that `inner` admits; neither has references or unions. */
  #admits(inner: JsonObject, outer: JsonObject): Finding[] {
    const [before, after] = this.#inDirection(inner, outer);
    const changed = (keyword: string): Finding => ({
      at: "",
      what: `${keyword} ${show(before[keyword])} became ${show(after[keyword])}`,
    });
    const numeric = inner["type"] === "integer" && outer["type"] === "number";
    if (outer["type"] !== undefined && outer["type"] !== inner["type"] && !numeric) return [changed("type")];
    const bound = (schema: JsonObject, keyword: string, open: number): number =>
      Number(schema[keyword] ?? open);
    return [
      ...LOWER_BOUNDS.filter((k) => bound(outer, k, -Infinity) > bound(inner, k, -Infinity)).map(changed),
      ...UPPER_BOUNDS.filter((k) => bound(outer, k, Infinity) < bound(inner, k, Infinity)).map(changed),
      ...UNDECIDABLE.filter(
        (k) => (outer[k] ?? false) !== false && !isDeepStrictEqual(inner[k], outer[k]),
      ).map(changed),
      ...this.#values(inner, outer),
      ...this.#properties(before, after),
      ...below("[]", this.compare(before["items"], after["items"])),
    ];
  }

  /** Closed lists of values: `enum`, and `const` as a list of one. */
  #values(inner: JsonObject, outer: JsonObject): Finding[] {
    const [some, all] = [valuesOf(inner), valuesOf(outer)];
    if (all === undefined) return [];
    const verb = this.#request ? "removed" : "added";
    if (some === undefined)
      return [{ at: "", what: `values other than ${all.map(show).join(", ")} ${verb}` }];
    const unseen = this.#request ? [] : this.#onlyWithNewHeaders(inner);
    const extra = some.filter((value) => ![...all, ...unseen].some((one) => isDeepStrictEqual(value, one)));
    return extra.map((value) => ({ at: "", what: `value ${show(value)} ${verb}` }));
  }

  /** The values of a response that no client of the older document gets. */
  #onlyWithNewHeaders(schema: JsonObject): Json[] {
    return entriesOf(schema["x-only-with-header"]).flatMap(([header, values]) =>
      this.#knownParameters.has(`header:${header.toLowerCase()}`) ? [] : arrayOf(values),
    );
  }

  #properties(before: JsonObject, after: JsonObject): Finding[] {
    const [old, now] = [this.#visible(this.#before, before), this.#visible(this.#after, after)];
    const shared = [...old.keys()].filter((name) => now.has(name));
    return [
      ...[...old.keys()]
        .filter((name) => !now.has(name))
        .map((name) => ({ at: `.${name}`, what: "removed" })),
      ...shared.flatMap((name) => below(`.${name}`, this.compare(old.get(name), now.get(name)))),
      ...this.#required(before, after, now),
      ...this.#others(before, after),
    ];
  }

  #required(before: JsonObject, after: JsonObject, now: Map<string, Json>): Finding[] {
    const [inner, outer] = this.#inDirection(before, after);
    const kept = new Set(stringsOf(inner["required"]));
    const wanted = stringsOf(outer["required"]).filter((name) => !kept.has(name));
    const declared = objectOf(after["properties"]);
    return wanted
      .filter((name) => now.has(name) || (this.#request && declared[name] === undefined))
      .map((name) => ({ at: `.${name}`, what: this.#request ? "became required" : "became optional" }));
  }

  /** Undeclared properties. An object that now permits them is like one with new properties. */
  #others(before: JsonObject, after: JsonObject): Finding[] {
    const { additionalProperties: old = true } = before;
    const { additionalProperties: now = true } = after;
    if (old === false) return [];
    if (now === false) return this.#request ? [{ at: "", what: "closed to other properties" }] : [];
    return below(".*", this.compare(old, now));
  }

  /** The properties that are sent in this direction. */
  #visible(root: JsonObject, schema: JsonObject): Map<string, Json> {
    const hidden = this.#request ? "readOnly" : "writeOnly";
    return new Map(
      entriesOf(schema["properties"]).filter(
        ([, property]) =>
          objectOf(property)[hidden] !== true && resolveObject(root, property)[hidden] !== true,
      ),
    );
  }

  get #request(): boolean {
    return this.#direction === "request";
  }

  /** `[inner, outer]` from `[before, after]`, and back. */
  #inDirection<T>(first: T, second: T): [T, T] {
    return this.#request ? [first, second] : [second, first];
  }
}

/** Places under a step; a place that begins with a schema's name is absolute. */
function below(step: string, findings: readonly Finding[]): Finding[] {
  return findings.map(({ at, what }) => ({ at: /^($|[.[])/.test(at) ? step + at : at, what }));
}

function show(value: Json | undefined): string {
  return value === undefined ? "(none)" : JSON.stringify(value);
}

function valuesOf(schema: JsonObject): readonly Json[] | undefined {
  if (schema["const"] !== undefined) return [schema["const"]];
  return schema["enum"] === undefined ? undefined : arrayOf(schema["enum"]);
}
