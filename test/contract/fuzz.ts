/**
 * Tests of an API with requests made from the schemas of its document. Valid ones are never refused for their
 * form, invalid ones never succeed, and nothing is ever answered with what the document does not declare (the
 * call sees to that) or with a 500. A failure prints the seed; FUZZ_SEED runs it again.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Answer, CallOptions, ContractCall } from "../support/contract-api.ts";
import { type Described, type Parameter, readSchemas, type Schema } from "./schema-arbitraries.ts";

/** What the tests need to know of an API beside its document. */
export interface FuzzTarget {
  /** File in openapi/, without its ending. */
  readonly document: string;
  readonly call: ContractCall;
  credentials(operation: Described): CallOptions;
  /** Values that lead further than random ones, for they exist or are understood: by parameter or member. */
  readonly sharp: Readonly<Record<string, fc.Arbitrary<unknown>>>;
  /** Path parameters of a thing that exists. */
  known(): Record<string, string>;
  /** Whether a refusal of a valid request is for what it says, not for its form. */
  isOfContent(operation: Described, answer: Answer): boolean;
  /** Texts that are no ids, for they are other paths. */
  readonly otherPaths?: readonly string[];
  /** Whether a body that the schema allows is read as it was made. */
  isWhole?(body: Record<string, unknown>): boolean;
  /** Of an operation that takes a form. */
  requiredField?(operation: Described): string;
}

interface Body {
  readonly mediaType: string;
  readonly value: unknown;
}

interface Request {
  readonly path: Record<string, string>;
  readonly query: readonly [string, string][];
  readonly headers: Record<string, string>;
  readonly body: Body | undefined;
}

const seed = Number(process.env["FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const run = { seed, numRuns: 40 };
const form = "application/x-www-form-urlencoded";

/** A form holds texts only. */
function asForm(value: unknown): string {
  const members = typeof value === "object" && value !== null ? Object.entries(value) : [];
  const texts = members.filter((member): member is [string, string] => typeof member[1] === "string");
  return new URLSearchParams(texts).toString();
}

/** The members that are there, with others in their place. */
function replaced(value: unknown, replacements: Record<string, unknown>): Record<string, unknown> {
  const members = Object.entries(value ?? {}).map(([name, member]) => [name, replacements[name] ?? member]);
  return Object.fromEntries(members);
}

/** What an HTTP client can send as a header, and a server gets as it was. */
function isHeaderValue(value: unknown): value is string {
  return typeof value === "string" && /^[\x20-\x7e]*$/.test(value) && value.trim() === value;
}

/** Whether the document says more of it than that it is a text. */
function isConstrained({ schema }: Parameter): boolean {
  return Object.keys(schema).some((key) => key !== "type");
}

/** Requests to the operations of a document, and those nearly right. */
function requestsOf({ document, sharp, isWhole, otherPaths = [], requiredField }: FuzzTarget) {
  const { operations, valid, invalid, allows, resolve } = readSchemas(document);

  function sharpened(name: string, values: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
    return fc.oneof({ arbitrary: sharp[name] ?? values, weight: 2 }, values);
  }

  /** A body that is allowed, the members that stand for something sharpened. */
  function validBody({ bodies }: Described, mediaType: string): fc.Arbitrary<Body> {
    const members = Object.keys(sharp).map(
      (name) => [name, sharpened(name, fc.constant(undefined))] as const,
    );
    return fc
      .tuple(valid(bodies[mediaType] ?? {}), fc.record(Object.fromEntries(members)))
      .map(([value, replacements]) => ({ mediaType, value: replaced(value, replacements) }))
      .filter(({ value }) => isWhole?.(value) !== false);
  }

  /** Values for the parameters in one place, by name; those that are not required may be absent. */
  function parametersIn({ parameters }: Described, place: string): fc.Arbitrary<Record<string, unknown>> {
    const declared = parameters.filter(
      (one) => one.in === place && (place !== "header" || isConstrained(one)),
    );
    const members = declared.map(
      ({ name, schema }) =>
        [name, sharpened(name, valid(schema)).filter((value) => allows(schema, value))] as const,
    );
    const requiredKeys = declared.filter(({ required }) => required).map(({ name }) => name);
    return fc.record(Object.fromEntries(members), { requiredKeys });
  }

  const texts = (values: Record<string, unknown>): [string, string][] =>
    Object.entries(values).flatMap(([name, value]) =>
      [value].flat().map((one): [string, string] => [name, String(one)]),
    );

  function validRequests(operation: Described): fc.Arbitrary<Request> {
    const mediaTypes = Object.keys(operation.bodies);
    const bodies = mediaTypes.map((mediaType) => validBody(operation, mediaType));
    const none = operation.bodyRequired ? [] : [fc.constant(undefined)];
    return fc.record({
      path: parametersIn(operation, "path").map((record) => Object.fromEntries(texts(record))),
      query: parametersIn(operation, "query").map(texts),
      headers: parametersIn(operation, "header").map((record) => Object.fromEntries(texts(record))),
      body: fc.oneof(...none, ...bodies),
    });
  }

  /** Texts that the wire can carry and a parameter does not allow. */
  function invalidTexts(schema: Schema): fc.Arbitrary<string> {
    const { type, items } = resolve(schema);
    if (type === "array") return invalidTexts(items ?? {});
    const values = invalid(schema).map((value) =>
      typeof value === "string" ? value : JSON.stringify(value),
    );
    const forms = fc.constantFrom("", " 1", "0x1", "1e1", "+1", "1.0", "yes", "TRUE", "null");
    if (type === "string")
      return invalid(schema)
        .filter((value) => typeof value === "string")
        .map(String);
    const isRight = type === "integer" ? /^-?\d+$/ : /^(true|false)$/i;
    const words = fc.oneof(values, forms, fc.string({ maxLength: 5 })).filter((text) => !isRight.test(text));
    if (type !== "integer") return words;
    const numbers = invalid(schema)
      .filter((value) => Number.isSafeInteger(value))
      .map(String);
    return fc.oneof(words, numbers);
  }

  /** Valid requests with one part made invalid, each part in turn. */
  function invalidRequests(operation: Described): fc.Arbitrary<Request>[] {
    const good = validRequests(operation);
    const withPart = <T>(part: fc.Arbitrary<T>, put: (request: Request, bad: T) => Request) =>
      fc.tuple(good, part).map(([request, bad]) => put(request, bad));
    const bodies = Object.keys(operation.bodies).map((mediaType) =>
      mediaType === form
        ? withPart(invalidForms(operation), (request, raw) => ({
            ...request,
            body: { mediaType, value: raw },
          }))
        : withPart(invalid(operation.bodies[mediaType] ?? {}), (request, value) => ({
            ...request,
            body: { mediaType, value },
          })),
    );
    const places = operation.parameters.flatMap(({ name, in: place, required, schema }) => {
      const bad = invalidTexts(schema);
      switch (place) {
        case "path": {
          const ids = bad.filter((text) => !["", ".", "..", ...otherPaths].includes(text));
          return [
            withPart(ids, (request, text) => ({ ...request, path: { ...request.path, [name]: text } })),
          ];
        }
        case "query": {
          const without = ({ query }: Request) => query.filter(([key]) => key !== name);
          const instead = withPart(bad, (request, text) => ({
            ...request,
            query: [...without(request), [name, text]],
          }));
          const twice = withPart(valid(schema), (request, value) => ({
            ...request,
            query: [...without(request), [name, String(value)], [name, String(value)]],
          }));
          const isList = resolve(schema).type === "array";
          const missing = good.map((request) => ({ ...request, query: without(request) }));
          const isFree = !isConstrained({ name, in: place, schema });
          return [...(isFree ? [] : [instead]), ...(isList ? [] : [twice]), ...(required ? [missing] : [])];
        }
        default:
          return isConstrained({ name, in: place, schema })
            ? [
                withPart(bad.filter(isHeaderValue), (request, text) => ({
                  ...request,
                  headers: { ...request.headers, [name]: text },
                })),
              ]
            : [];
      }
    });
    return [...bodies, ...places];
  }

  /** Forms without a required field, or with it empty. */
  function invalidForms(operation: Described): fc.Arbitrary<Record<string, string>> {
    const required = requiredField?.(operation) ?? "";
    const others = fc.dictionary(fc.string({ maxLength: 10 }), fc.string({ maxLength: 10 }), { maxKeys: 4 });
    return fc.tuple(others, fc.boolean()).map(([fields, isEmpty]) => {
      const { [required]: _gone, ...rest } = fields;
      return isEmpty ? { ...rest, [required]: "" } : rest;
    });
  }

  return { operations, validRequests, invalidRequests };
}

/** Declares the tests. */
export function fuzz(target: FuzzTarget): void {
  const { operations, validRequests, invalidRequests } = requestsOf(target);
  const { call, credentials, known, isOfContent } = target;

  function send(operation: Described, request: Request, more: Record<string, string> = {}) {
    const { path, query, headers, body } = request;
    const raw = body && (body.mediaType === form ? asForm(body.value) : JSON.stringify(body.value));
    return call(operation.id, {
      ...credentials(operation),
      path,
      query: `?${new URLSearchParams([...query])}`,
      ...(raw !== undefined && { raw }),
      headers: { ...headers, ...more, ...(body && { "content-type": body.mediaType }) },
    });
  }

  describe.each(operations)("$id", (operation) => {
    test("never refuses a valid request for its form", async () => {
      await fc.assert(
        fc.asyncProperty(validRequests(operation), async (request) => {
          const answer = await send(operation, request);
          const isRight = answer.status < 300 || isOfContent(operation, answer);
          expect(isRight, `${operation.id} ${answer.status} ${answer.text}`).toBe(true);
        }),
        run,
      );
    });

    const bad = invalidRequests(operation);
    if (bad.length > 0) {
      test("never takes an invalid request", async () => {
        await fc.assert(
          fc.asyncProperty(fc.oneof(...bad), async (request) => {
            const { status, text } = await send(operation, request);
            expect(status, text).toBe(400);
          }),
          run,
        );
      });
    }

    if (Object.keys(operation.bodies).length > 0) {
      test("answers any bytes of any type with a client error, and soon", async () => {
        const mediaTypes = fc.oneof(
          fc.constantFrom(...Object.keys(operation.bodies), "text/plain"),
          fc.string(),
        );
        const bytes = fc.oneof(
          fc.uint8Array({ maxLength: 200, minLength: operation.bodyRequired ? 0 : 1 }),
          fc
            .string({ unit: "binary", minLength: operation.bodyRequired ? 0 : 1 })
            .map((text) => Buffer.from(text)),
        );
        await fc.assert(
          fc.asyncProperty(mediaTypes, bytes, async (type, raw) => {
            const headers = { "content-type": type.replace(/[^\x20-\x7e]/g, "") };
            const request = {
              ...credentials(operation),
              path: known(),
              raw: new Uint8Array(raw),
              headers,
            };
            const { status, text } = await call(operation.id, request);
            expect([400, 413, 415], text).toContain(status);
          }),
          run,
        );
      });
    }

    test("answers whatever headers come with it as the document says", async () => {
      const value = fc.string({ maxLength: 200 }).map((text) => text.replace(/[^\x21-\x7e]/g, ""));
      const declared = operation.parameters.filter((one) => one.in === "header").map(({ name }) => name);
      const others = ["accept", "if-none-match", "accept-encoding", "x-api-key"];
      const names = new Set([...declared, ...others].map((name) => name.toLowerCase()));
      const headers = fc.record(Object.fromEntries([...names].map((name) => [name, value])), {
        requiredKeys: [],
      });
      await fc.assert(
        fc.asyncProperty(validRequests(operation), headers, async (request, sent) => {
          const given = Object.entries(sent).filter(
            (header): header is [string, string] => header[1] !== undefined,
          );
          const answer = await send(operation, { ...request, headers: {} }, Object.fromEntries(given));
          expect(answer.status, answer.text).toBeLessThan(500);
          const id = sent["x-request-id"] ?? "";
          const isTaken = id.length >= 1 && id.length <= 128;
          if (isTaken) expect(answer.headers.get("x-request-id")).toBe(id);
          else expect(answer.headers.get("x-request-id")).toMatch(/^[\w-]{36}$/);
        }),
        run,
      );
    });
  });
}
