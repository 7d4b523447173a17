/**
 * Requests made from the schemas of openapi/auth.yaml. Valid ones are never refused for their form, invalid
 * ones never succeed, and nothing is ever answered with what the document does not declare (`api.call`
 * sees to that) or with a 500. A failure prints the seed; FUZZ_SEED runs it again.
 */
import fc from "fast-check";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  type Answer,
  type AuthApi,
  authApi,
  type CallOptions,
  internal,
  mobileApp,
} from "../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type Described, readSchemas } from "./schema-arbitraries.ts";

const { operations, valid, invalid } = readSchemas("auth");
const seed = Number(process.env["FUZZ_SEED"] ?? Math.floor(Math.random() * 2 ** 31));
const run = { seed, numRuns: 40 };
const form = "application/x-www-form-urlencoded";

let server: AuthServer;
let api: AuthApi;
let known: { id: string; phone: string };
let token: string;
beforeAll(async () => {
  server = await startAuthServer("PGlite");
  api = authApi(server.base);
});
afterAll(() => server.stop());
beforeEach(async () => {
  known = await api.newIdentity();
  token = (await api.newPair(known.id)).access_token;
});

/** Codes of countries whose numbers are of different lengths, and one that nobody has. */
const countries = fc.constantFrom("1", "7", "39", "43", "44", "49", "55", "81", "86", "290", "358", "999");
/** Phone numbers, many of which are possible, in several spellings: of random text hardly any is one. */
const phones = fc
  .tuple(countries, fc.stringMatching(/^[1-9]\d{3,17}$/), fc.nat(2))
  .map(
    ([country, national, spelling]) =>
      [
        `+${country}${national}`,
        `+${country} (${national.slice(0, 3)}) ${national.slice(3)}`,
        ` ${country} ${national}`,
      ][spelling] ?? "",
  );
const grants = fc.constantFrom("auth", "auth", "password", "refresh_token", "phone_otp", "phone_otp_token");
const scopes = fc.constantFrom("profile", "orders", "profile orders", "");
const lazily = (value: () => string) => fc.constant(undefined).map(value);

/** Often a value that leads further than a random one: one that exists, or one that is understood. */
function sharpened(name: string, values: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> {
  const sharp: Record<string, fc.Arbitrary<string>> = {
    phone: fc.oneof(
      phones,
      lazily(() => known.phone),
    ),
    grant_type: grants,
    scope: scopes,
    id: lazily(() => known.id),
    auth_id: lazily(() => known.id),
    token: lazily(() => token),
  };
  return fc.oneof({ arbitrary: sharp[name] ?? values, weight: 2 }, values);
}

interface Body {
  readonly mediaType: string;
  readonly value: unknown;
}

/** A body that is allowed, the members that stand for something sharpened. An empty grant_type counts as absent. */
function validBody({ bodies, parameters }: Described, mediaType: string): fc.Arbitrary<Body> {
  const names = ["phone", "grant_type", "auth_id", "token", "scope", ...parameters.map(({ name }) => name)];
  const sharp = names.map((name) => [name, sharpened(name, fc.constant(undefined))] as const);
  return fc
    .tuple(valid(bodies[mediaType] ?? {}), fc.record(Object.fromEntries(sharp)))
    .map(([value, replacements]) => ({ mediaType, value: replaced(value, replacements) }))
    .filter(({ value }) => value["grant_type"] !== "");
}

/** The members that are there, with others in their place. */
function replaced(value: unknown, replacements: Record<string, unknown>): Record<string, unknown> {
  const members = Object.entries(value ?? {}).map(([name, member]) => [name, replacements[name] ?? member]);
  return Object.fromEntries(members);
}

/** A form holds texts only. */
function asForm(value: unknown): string {
  const members = typeof value === "object" && value !== null ? Object.entries(value) : [];
  const texts = members.filter((member): member is [string, string] => typeof member[1] === "string");
  return new URLSearchParams(texts).toString();
}

interface Request {
  readonly path: Record<string, string>;
  readonly query: readonly [string, string][];
  readonly body: Body | undefined;
}

function credentials({ id, security }: Described): CallOptions {
  if (security.length === 0) return {};
  return { as: id === "generateTokens" ? mobileApp : internal };
}

function send(operation: Described, { path, query, body }: Request, headers: Record<string, string> = {}) {
  const raw = body && (body.mediaType === form ? asForm(body.value) : JSON.stringify(body.value));
  return api.call(operation.id, {
    ...credentials(operation),
    path,
    query: `?${new URLSearchParams([...query])}`,
    ...(raw !== undefined && { raw }),
    headers: { ...headers, ...(body && { "content-type": body.mediaType }) },
  });
}

/** Texts for the parameters in one place, by name. */
function parametersIn(operation: Described, place: string): fc.Arbitrary<Record<string, string>> {
  const declared = operation.parameters.filter((parameter) => parameter.in === place);
  const members = declared.map(
    ({ name, schema }) => [name, sharpened(name, valid(schema)).map(String)] as const,
  );
  return fc.record(Object.fromEntries(members));
}

function validRequests(operation: Described): fc.Arbitrary<Request> {
  const mediaTypes = Object.keys(operation.bodies);
  const body: fc.Arbitrary<Body | undefined> =
    mediaTypes.length === 0
      ? fc.constant(undefined)
      : fc.oneof(...mediaTypes.map((mediaType) => validBody(operation, mediaType)));
  return fc.record({
    path: parametersIn(operation, "path"),
    query: parametersIn(operation, "query").map((record) => Object.entries(record)),
    body,
  });
}

/** Valid requests with one part made invalid, each part in turn. */
function invalidRequests(operation: Described): fc.Arbitrary<Request>[] {
  const good = validRequests(operation);
  const withPart = <T>(part: fc.Arbitrary<T>, put: (request: Request, bad: T) => Request) =>
    fc.tuple(good, part).map(([request, bad]) => put(request, bad));
  const has = (place: string) => operation.parameters.some((parameter) => parameter.in === place);
  const bodies = Object.keys(operation.bodies).map((mediaType) =>
    mediaType === form
      ? withPart(invalidForms(operation), (request, raw) => ({ ...request, body: { mediaType, value: raw } }))
      : withPart(invalid(operation.bodies[mediaType] ?? {}), (request, value) => ({
          ...request,
          body: { mediaType, value },
        })),
  );
  // An id with a slash in it is another path; a text that is not one is a number at most.
  const ids = fc.record({
    id: fc.string({ minLength: 1, maxLength: 20 }).filter((id) => !/^[\w.~:-]+$/.test(id)),
  });
  return [
    ...bodies,
    ...(has("path") ? [withPart(ids, (request, path) => ({ ...request, path }))] : []),
    ...(has("query")
      ? [
          good.map((request) => ({ ...request, query: [] })),
          good.map((request) => ({ ...request, query: [...request.query, ...request.query] })),
          withPart(fc.string({ maxLength: 3 }), (request, phone) => ({
            ...request,
            query: [["phone", phone]],
          })),
        ]
      : []),
  ];
}

/** Forms without a required field, or with it empty. */
function invalidForms({ bodies }: Described): fc.Arbitrary<Record<string, string>> {
  const required = bodies[form]?.$ref?.endsWith("TokenRequest") ? "grant_type" : "token";
  const others = fc.dictionary(fc.string({ maxLength: 10 }), fc.string({ maxLength: 10 }), { maxKeys: 4 });
  return fc.tuple(others, fc.boolean()).map(([fields, isEmpty]) => {
    const { [required]: _gone, ...rest } = fields;
    return isEmpty ? { ...rest, [required]: "" } : rest;
  });
}

/** What may be refused although its form is right: what it says does not hold. */
const ofContent: Record<string, RegExp> = {
  "400": /is not a possible phone number|is larger than 16384 bytes|"\/body\/id","message":"differs/,
  "404": /identity_not_found/,
  "409": /identity_(id|phone|email)_taken/,
  "429": /slow_down/,
};
const ofOAuth =
  /"error":"(invalid_grant|invalid_scope|invalid_token|unauthorized_client|unsupported_grant_type)"|is required for grant_type|a second time/;

function expectGoodForm(operation: Described, { status, text }: Answer): void {
  if (status < 300) return;
  const isContent = ofContent[status]?.test(text) || (status === 400 && ofOAuth.test(text));
  expect(isContent, `${operation.id} ${status} ${text}`).toBe(true);
}

describe.each(operations)("$id", (operation) => {
  test("never refuses a valid request for its form", async () => {
    await fc.assert(
      fc.asyncProperty(validRequests(operation), async (request) => {
        expectGoodForm(operation, await send(operation, request));
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
        fc.uint8Array({ maxLength: 200 }),
        fc.string({ unit: "binary" }).map((text) => Buffer.from(text)),
      );
      await fc.assert(
        fc.asyncProperty(mediaTypes, bytes, async (type, raw) => {
          const headers = { "content-type": type.replace(/[^\x20-\x7e]/g, "") };
          const request = {
            ...credentials(operation),
            path: { id: known.id },
            raw: new Uint8Array(raw),
            headers,
          };
          const { status, text } = await api.call(operation.id, request);
          expect([400, 413, 415], text).toContain(status);
        }),
        run,
      );
    });
  }

  test("answers whatever headers come with it as the document says", async () => {
    const value = fc.string({ maxLength: 200 }).map((text) => text.replace(/[^\x21-\x7e]/g, ""));
    const names = ["x-request-id", "traceparent", "accept", "if-none-match", "accept-encoding", "x-api-key"];
    const headers = fc.record(Object.fromEntries(names.map((name) => [name, value])), { requiredKeys: [] });
    await fc.assert(
      fc.asyncProperty(validRequests(operation), headers, async (request, sent) => {
        const named = Object.entries(sent).filter(
          (header): header is [string, string] => header[1] !== undefined,
        );
        const answer = await send(operation, request, Object.fromEntries(named));
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
