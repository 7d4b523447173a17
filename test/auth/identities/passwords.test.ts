/** Passwords that are guessed first are refused, and those that were set before stay as they are. */
import { randomUUID } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { dictionary } from "@zxcvbn-ts/language-common";
import { beforeAll, describe, expect, test } from "vitest";
import { passwordProblem } from "../../../src/auth/identities/password.ts";
import { type AuthApi, authApi, backoffice, internal } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

let api: AuthApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const server = await startAuthServer("PGlite");
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
});

const setPassword = (id: string, password: string) =>
  api.call("setIdentityPassword", { as: internal, path: { id }, json: { password } });
const logIn = (username: string, password: string) =>
  api.token({ grant_type: "password", username, password }, backoffice);

const repeated = /repeats one character; choose a password that is harder to guess/;
const common = /is one of the most common passwords; choose one that is harder to guess/;

describe("a password", () => {
  test.each([
    // What pydantic makes of a SecretStr in JSON.
    ["**********", repeated],
    ["        ", repeated],
    ["aAaAaAaA", repeated],
    ["🔑🔑🔑🔑🔑🔑🔑🔑", repeated],
    ["password", common],
    ["Password1", common],
    ["QWERTYUIOP", common],
    ["1q2w3e4r5t", common],
    ["ｐａｓｓｗｏｒｄ", common],
    ["e\u0301a\u0301o\u0301u\u0301", /has fewer than 8 characters once accents are joined to their letters/],
  ])("%j is refused, with what to do, and changes nothing", async (password, message) => {
    const { id } = await api.newIdentity();
    expect((await setPassword(id, "correct horse")).status).toBe(204);
    const { status, body } = await setPassword(id, password);
    const errors = [{ pointer: "/body/password", message: expect.stringMatching(message) }];
    expect({ status, body }).toMatchObject({ status: 400, body: { code: "invalid_request", errors } });
    expect((await logIn(id, "correct horse")).status).toBe(200);
    expect((await logIn(id, password)).status).toBe(400);
  });

  test.each(["correct horse", "aaaaaaab", "my password1", "鍵鍵鍵鍵鍵鍵鍵門"])(
    "%j is taken",
    async (password) => {
      const { id } = await api.newIdentity();
      expect((await setPassword(id, password)).status).toBe(204);
      expect((await logIn(id, password)).status).toBe(200);
    },
  );

  test("that is refused is a 400 also for an identity that is not there, for which another one is a 404", async () => {
    const id = randomUUID();
    const errors = [{ pointer: "/body/password", message: expect.stringMatching(common) }];
    expect(await setPassword(id, "password")).toMatchObject({
      status: 400,
      body: { code: "invalid_request", errors },
    });
    expect(await setPassword(id, "correct horse")).toMatchObject({
      status: 404,
      body: { code: "identity_not_found" },
    });
  });

  test("is refused if it is among the 10,000 most common ones, and long enough to be one", async () => {
    const listed = Object.values(dictionary["passwords-common"]).slice(0, 10_000);
    const longEnough = listed.filter(({ length }) => length >= 8);
    expect(longEnough.length).toBeGreaterThan(3000);
    for (const password of longEnough) expect(await passwordProblem(password), password).toBeDefined();
  });
});

test("no document gives a member the format that generators hide on the wire", () => {
  const documents = globSync("openapi/*.yaml");
  expect(documents.length).toBeGreaterThan(0);
  for (const file of documents) expect(readFileSync(file, "utf8")).not.toMatch(/format: password/);
});
