/**
 * Whether one version of an OpenAPI document breaks the callers of another: clients written or generated
 * from the older one must go on working against the newer one. Schemas are judged in
 * schema-breaking.ts; this file knows operations, parameters, bodies, responses, headers,
 * security and servers. Descriptions, examples, tags, links and unused components never break anybody;
 * callbacks and webhooks are not compared.
 */
import type { Json, JsonObject } from "./document.ts";
import { entriesOf, objectOf, resolveObject } from "./document.ts";
import type { Operation } from "./operations.ts";
import { operationsOf } from "./operations.ts";
import type { Finding } from "./schema-breaking.ts";
import { SchemaComparison } from "./schema-breaking.ts";

/** A breaking change, and every place of the document that it shows in. */
export interface Break {
  readonly what: string;
  readonly where: readonly string[];
}

/** Lists what the newer document breaks of the older one, one entry for each change. */
export function openapiBreaks(before: JsonObject, after: JsonObject): Break[] {
  const comparison = new DocumentComparison(before, after);
  const now = operationsOf(after);
  for (const [key, operation] of operationsOf(before)) comparison.operation(operation, now.get(key));
  return comparison.breaks();
}

/**
 * Whether going from one version to the other says "this may break you": the major number rose, or the
 * minor one while the major stays 0 (semver.org, sections 4 and 8).
 */
export function declaresBreak(before: string, after: string): boolean {
  const [oldMajor = 0, oldMinor = 0] = before.split(".").map(Number);
  const [major = 0, minor = 0] = after.split(".").map(Number);
  return major > oldMajor || (oldMajor === 0 && major === 0 && minor > oldMinor);
}

class DocumentComparison {
  readonly #before: JsonObject;
  readonly #after: JsonObject;
  readonly #requests: SchemaComparison;
  readonly #responses: SchemaComparison;
  /** What breaks, and where it shows. */
  readonly #places = new Map<string, Set<string>>();

  constructor(before: JsonObject, after: JsonObject) {
    this.#before = before;
    this.#after = after;
    this.#requests = new SchemaComparison(before, after, "request");
    this.#responses = new SchemaComparison(before, after, "response");
  }

  breaks(): Break[] {
    return [...this.#places].map(([what, where]) => ({ what, where: [...where] }));
  }

  operation(old: Operation, now: Operation | undefined): void {
    const place = old.label;
    if (now === undefined) {
      this.#say(place, "removed");
      return;
    }
    const [oldId, newId] = [old.self["operationId"], now.self["operationId"]];
    if (oldId !== undefined && oldId !== newId) this.#say(place, `operationId ${oldId} became ${newId}`);
    for (const url of old.servers.filter((server) => !now.servers.includes(server))) {
      this.#report(place, [{ at: `server ${url}`, what: "removed" }]);
    }
    for (const held of old.security.filter((set) => !now.security.some((needed) => needed.isSubsetOf(set)))) {
      const credentials = held.size === 0 ? "no credentials" : [...held].join(" and ");
      this.#say(place, `${credentials}: not enough any more`);
    }
    this.#parameters(place, old, now);
    this.#body(`${place} body`, old.self["requestBody"], now.self["requestBody"]);
    this.#allResponses(place, old.self["responses"], now.self["responses"]);
  }

  #parameters(operation: string, old: Operation, now: Operation): void {
    for (const [key, was] of old.parameters) {
      const place = `${operation} ${key}`;
      const is = now.parameters.get(key);
      if (is === undefined) {
        this.#say(place, "removed");
        continue;
      }
      if (is["required"] === true && was["required"] !== true) this.#say(place, "became required");
      for (const aspect of ["style", "explode"].filter((name) => was[name] !== is[name])) {
        this.#say(place, `${aspect} changed`);
      }
      this.#report(place, this.#requests.compare(was["schema"], is["schema"]));
      this.#content(place, this.#requests, was, is);
    }
    for (const [key, is] of now.parameters) {
      const added = !old.parameters.has(key) && is["required"] === true;
      if (added) this.#say(`${operation} ${key}`, "added and required");
    }
  }

  #body(place: string, before: Json | undefined, after: Json | undefined): void {
    if (before !== undefined && after === undefined) {
      this.#say(place, "removed");
      return;
    }
    const [was, is] = [resolveObject(this.#before, before), resolveObject(this.#after, after)];
    if (is["required"] === true && was["required"] !== true) this.#say(place, "became required");
    this.#content(place, this.#requests, was, is);
  }

  #allResponses(operation: string, before: Json | undefined, after: Json | undefined): void {
    const now = new Map(entriesOf(after).map(([status, response]) => [status.toUpperCase(), response]));
    for (const [status, response] of entriesOf(before)) {
      const place = `${operation} ${status}`;
      const match = now.get(status.toUpperCase());
      if (match === undefined) {
        this.#say(place, "removed");
        continue;
      }
      const [was, is] = [resolveObject(this.#before, response), resolveObject(this.#after, match)];
      this.#headers(place, was["headers"], is["headers"]);
      this.#content(place, this.#responses, was, is);
    }
  }

  #headers(response: string, before: Json | undefined, after: Json | undefined): void {
    const now = new Map(entriesOf(after).map(([name, header]) => [name.toLowerCase(), header]));
    for (const [name, header] of entriesOf(before)) {
      const place = `${response} header ${name}`;
      const match = now.get(name.toLowerCase());
      if (match === undefined) {
        this.#say(place, "removed");
        continue;
      }
      const [was, is] = [resolveObject(this.#before, header), resolveObject(this.#after, match)];
      if (was["required"] === true && is["required"] !== true) this.#say(place, "became optional");
      this.#report(place, this.#responses.compare(was["schema"], is["schema"]));
    }
  }

  /** Media types and their schemas, of a body, a response or a parameter. */
  #content(holder: string, schemas: SchemaComparison, was: JsonObject, is: JsonObject): void {
    const now = new Map(entriesOf(is["content"]).map(([type, media]) => [type.toLowerCase(), media]));
    for (const [type, media] of entriesOf(was["content"])) {
      const place = `${holder} ${type}`;
      const match = now.get(type.toLowerCase());
      if (match === undefined) this.#say(place, "removed");
      else this.#report(place, schemas.compare(objectOf(media)["schema"], objectOf(match)["schema"]));
    }
  }

  #say(place: string, what: string): void {
    this.#report(place, [{ at: "", what }]);
  }

  /** One entry for a change of a named schema, however many operations use it. */
  #report(place: string, findings: readonly Finding[]): void {
    for (const { at, what } of findings) {
      const named = at !== "" && !/^[.[]/.test(at);
      const change = named ? `${at}: ${what}` : `${place}${at === "" ? "" : ` ${at}`}: ${what}`;
      this.#places.set(change, (this.#places.get(change) ?? new Set()).add(place));
    }
  }
}
