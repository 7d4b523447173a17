/**
 * Which texts are ids, in every short string: what the document allows reaches an identity by its path, and
 * nothing else does. The requests are written by hand, as a client's URL parser would change some of them.
 */
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { text } from "node:stream/consumers";
import { Ajv2020 } from "ajv/dist/2020.js";
import { beforeAll, expect, test } from "vitest";
import { parse } from "yaml";
import { type AuthApi, authApi, internal, newPhone } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

let server: AuthServer;
let api: AuthApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startAuthServer("PGlite");
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
});

const isId = new Ajv2020({ strict: false }).compile({
  ...parse(readFileSync(new URL("../../../openapi/auth.yaml", import.meta.url), "utf8")),
  $ref: "#/components/schemas/IdentityId",
});

async function get(path: string): Promise<{ status: number; body: unknown }> {
  const { hostname, port, pathname } = new URL(server.base);
  const headers = { authorization: internal };
  const { promise, resolve, reject } = Promise.withResolvers<{ status: number; body: unknown }>();
  request({ hostname, port, path: `${pathname}/v1/identities/${path}`, headers }, (response) => {
    const answer = async () => ({
      status: response.statusCode ?? 0,
      body: JSON.parse(await text(response)) as unknown,
    });
    answer().then(resolve, reject);
  })
    .once("error", reject)
    .end();
  return promise;
}

/** Every string of at most `length` of these characters. */
function strings(characters: readonly string[], length: number): string[] {
  if (length === 0) return [""];
  const shorter = strings(characters, length - 1);
  const longest = shorter.filter((each) => [...each].length === length - 1);
  return [...shorter, ...longest.flatMap((each) => characters.map((character) => each + character))];
}

const everyCharacter = Array.from({ length: 0x102 }, (_, code) => String.fromCodePoint(code));
/** Those that mean something in a path, and some that mean nothing. */
const sharp = [".", "/", "%", "2", "F", "\\", "?", " ", "+", "é"];

test("a path reaches the identity of each id, and of nothing else", async () => {
  for (const id of [...strings(everyCharacter, 1), ...strings(sharp, 3)]) {
    const { status, body } = await get(encodeURIComponent(id));
    const wanted = isId(id) ? { status: 404, code: "identity_not_found" } : { status: expect.any(Number) };
    const found = { status, code: (body as { code: string }).code };
    expect(found, JSON.stringify(id)).toMatchObject(wanted);
    if (!isId(id)) expect(found.code, JSON.stringify(id)).not.toBe("identity_not_found");
  }
});

test("an id in the body is one if the document says so", async () => {
  for (const id of [...strings(everyCharacter, 1), ...strings(sharp, 2)]) {
    // The phone is refused in any case: no identity comes of it.
    const { body } = await api.call("createIdentity", { as: internal, json: { id, phone: "none" } });
    const pointers = (body as { errors: { pointer: string }[] }).errors.map(({ pointer }) => pointer);
    expect(pointers.includes("/body/id"), JSON.stringify(id)).toBe(!isId(id));
  }
});

test("each spelling of a path names the identity of the decoded id", async () => {
  await api.newIdentity({ id: "a/b", phone: newPhone() });
  for (const path of ["a%2Fb", "a%2fb", "%61%2F%62"]) {
    expect(await get(path)).toMatchObject({ status: 200, body: { id: "a/b" } });
  }
  expect(await get("a%252Fb")).toMatchObject({ status: 404, body: { code: "identity_not_found" } });
  for (const path of ["a/b", "a%2Fb/", "/a%2Fb", "a%2Fb/password/x"]) {
    expect(await get(path)).toMatchObject({ status: 404, body: { code: "not_found" } });
  }
  for (const path of ["%2E", "%2e%2E", ".%2e"]) expect((await get(path)).status).toBe(400);
  expect(await get("find%2Dby-phone")).toMatchObject({ status: 400, body: { code: "invalid_request" } });
});
