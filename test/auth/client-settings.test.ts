import { describe, expect, test } from "vitest";
import { canonicalList, clientRegistrations } from "../../src/auth/client-settings.ts";
import { parse as parseKind } from "../../src/platform/settings/kinds.ts";

const least = { clientId: "app", clientSecret: "a-long-enough-secret", grantTypes: ["auth"] };
const parse = (value: unknown) => parseKind(clientRegistrations, JSON.stringify(value), "production");

test("an omitted member has its default", () => {
  expect(parse([least])).toEqual({
    value: [
      {
        clientId: "app",
        clientSecrets: ["a-long-enough-secret"],
        clientName: "app",
        clientAuthenticationMethods: ["client_secret_basic"],
        grantTypes: ["auth"],
        scopes: [],
        clientSettings: { audiences: [], mayIntrospect: false },
        tokenSettings: { accessTokenSeconds: 900, refreshTokenSeconds: 2_592_000, refreshGraceSeconds: 30 },
      },
    ],
  });
});

test("what is given is kept, and the rest of an object has its defaults", () => {
  const clientSecrets = ["secret with spaces & signs", "the secret that replaces it"];
  const client = {
    clientId: "a:b/~%",
    clientName: "Käse 🧀",
    clientAuthenticationMethods: ["client_secret_basic"],
    grantTypes: [],
    scopes: ["notifications:send"],
    clientSettings: { mayIntrospect: true },
    tokenSettings: { refreshGraceSeconds: 0 },
  };
  expect(parse([{ ...client, clientSecret: clientSecrets }])).toEqual({
    value: [
      {
        ...client,
        clientSecrets,
        clientSettings: { audiences: [], mayIntrospect: true },
        tokenSettings: { accessTokenSeconds: 900, refreshTokenSeconds: 2_592_000, refreshGraceSeconds: 0 },
      },
    ],
  });
});

test("no clients are a list too", () => {
  expect(parse([])).toEqual({ value: [] });
});

describe("a member that is not right is reported under its path, without its value", () => {
  const id = "must be 1 to 128 visible ASCII characters";
  const secret = "must be printable ASCII characters, at most 256 and in production at least 16";
  const secrets = "must be a secret, or an array of one or two different ones";
  const grant =
    "must be one of password, refresh_token, phone_otp, auth, phone_otp_token, client_credentials";
  const grants = "must be an array of grant types, [] for a client that only introspects";
  const scope = 'must be 1 to 64 visible ASCII characters without " and \\';
  test.each([
    [{ clientId: undefined }, `[1].clientId is missing; it ${id}`],
    [{ clientId: "" }, `[1].clientId ${id}`],
    [{ clientId: "a b" }, `[1].clientId ${id}`],
    [{ clientId: "ä" }, `[1].clientId ${id}`],
    [{ clientId: "a\u0000" }, `[1].clientId ${id}`],
    [{ clientId: "x".repeat(129) }, `[1].clientId ${id}`],
    [{ clientId: 1 }, `[1].clientId ${id}`],
    [{ clientId: "first" }, "[1].clientId is also that of [0]"],
    [{ clientSecret: undefined }, "[1].clientSecret is missing"],
    [{ clientSecret: "hunter2\n".repeat(3) }, `[1].clientSecret ${secret}`],
    [{ clientSecret: ["hunter2"] }, "[1].clientSecret[0] must have at least 16 characters in production"],
    [
      { clientSecret: ["a-secret-of-its-own", "the-secret-of-the-first"] },
      "[1].clientSecret is also that of [0]",
    ],
    [{ clientSecret: [] }, `[1].clientSecret ${secrets}`],
    [
      { clientSecret: ["first", "second", "third"].map((one) => `${one} of three secrets`) },
      `[1].clientSecret ${secrets}`,
    ],
    [
      { clientSecret: Array(2).fill("twice the same secret") },
      "[1].clientSecret must not name the same twice",
    ],
    [{ clientSecret: "x".repeat(257) }, `[1].clientSecret ${secret}`],
    [{ clientSecret: "hunter2" }, "[1].clientSecret must have at least 16 characters in production"],
    [{ clientName: "" }, "[1].clientName must be 1 to 200 characters, none of them a control character"],
    [{ clientName: null }, "[1].clientName must be 1 to 200 characters, none of them a control character"],
    [
      { clientAuthenticationMethods: ["private_key_jwt"] },
      "[1].clientAuthenticationMethods[0] must be one of client_secret_basic, client_secret_post",
    ],
    [
      { clientAuthenticationMethods: [] },
      "[1].clientAuthenticationMethods must be an array of client_secret_basic and client_secret_post",
    ],
    [{ grantTypes: undefined }, `[1].grantTypes is missing; it ${grants}`],
    [{ grantTypes: "auth" }, `[1].grantTypes ${grants}`],
    [{ grantTypes: ["hunter2", "auth"] }, `[1].grantTypes[0] ${grant}`],
    [{ grantTypes: ["auth", "authorization_code"] }, `[1].grantTypes[1] ${grant}`],
    [{ grantTypes: ["auth", "auth"] }, "[1].grantTypes must not name the same twice"],
    [{ scopes: ["a b"] }, `[1].scopes[0] ${scope}`],
    [{ scopes: ['a"'] }, `[1].scopes[0] ${scope}`],
    [
      { scopes: Array.from({ length: 65 }, (_, index) => `s${index}`) },
      "[1].scopes must be an array of at most 64 scopes",
    ],
    [
      { scopes: Array.from({ length: 64 }, (_, index) => `${index}`.padEnd(64, "x")) },
      "[1].scopes must not be longer than 2000 characters together",
    ],
    [
      { clientSettings: [] },
      "[1].clientSettings must be an object with audiences, mayIntrospect and organizations",
    ],
    [{ clientSettings: { mayIntrospect: "true" } }, "[1].clientSettings.mayIntrospect must be true or false"],
    [
      { clientSettings: { audiences: [""] } },
      "[1].clientSettings.audiences[0] must be 1 to 128 visible ASCII characters",
    ],
    [{ clientSettings: { audience: "x" } }, "[1].clientSettings.audience is not known"],
    [
      { clientSettings: { organizations: ["42"] } },
      "[1] must have the grant client_credentials, as it has organizations",
    ],
    [
      { tokenSettings: { accessTokenSeconds: 0 } },
      "[1].tokenSettings.accessTokenSeconds must be an integer from 1 to 86400",
    ],
    [
      { tokenSettings: { accessTokenSeconds: "900" } },
      "[1].tokenSettings.accessTokenSeconds must be an integer from 1 to 86400",
    ],
    [
      { tokenSettings: { refreshTokenSeconds: 1.5 } },
      "[1].tokenSettings.refreshTokenSeconds must be an integer from 1 to 315360000",
    ],
    [
      { tokenSettings: { refreshGraceSeconds: -1 } },
      "[1].tokenSettings.refreshGraceSeconds must be an integer from 0 to 3600",
    ],
    [
      { tokenSettings: { accessTokenSeconds: 29 } },
      "[1].tokenSettings must have a refreshGraceSeconds of at most its accessTokenSeconds, but has 30 and 29",
    ],
    [{ client_id: "x" }, "[1].client_id is not known"],
    [{ "odd\nname/~": "x" }, '[1]["odd\\nname/~"] is not known'],
  ])("%j", (change, problem) => {
    const parsed = parse([
      { ...least, clientId: "first", clientSecret: "the-secret-of-the-first" },
      { ...least, ...change },
    ]);
    expect(parsed).toEqual({ problems: [problem] });
    expect(problem).not.toContain("hunter2");
  });
});

test("all that is wrong is reported together", () => {
  const parsed = parse([7, { clientId: "app", extra: 1, further: 2, grantTypes: ["x"] }]);
  expect(parsed).toEqual({
    problems: [
      "[0] must be an object that registers a client",
      "[1].clientSecret is missing",
      "[1].grantTypes[0] must be one of password, refresh_token, phone_otp, auth, phone_otp_token, client_credentials",
      "[1].extra is not known",
      "[1].further is not known",
    ],
  });
});

describe("text that is no list of clients", () => {
  const notJson = "must be a JSON array of clients, but is not JSON";
  test.each([
    ["hunter2", notJson],
    ['[{"clientSecret": hunter2}]', `${notJson}`],
    ['[{"clientSecret": "hunter2"', `${notJson} from character 27 on`],
    ["{}", "must be an array of clients"],
    ["null", "must be an array of clients"],
    ["[".repeat(100_000), notJson],
    ['[{"__proto__":{"clientId":"a"}}]', "[0].clientId is missing"],
  ])("%s", (text, problem) => {
    const parsed = parseKind(clientRegistrations, text, "production");
    expect(parsed).toHaveProperty(["problems", 0], expect.stringContaining(problem));
    expect(JSON.stringify(parsed)).not.toContain("hunter2");
  });
});

test("development takes short secrets, and one for two clients", () => {
  const list = ["first", "second"].map((clientId) => ({ ...least, clientId, clientSecret: "s" }));
  const parsed = parseKind(clientRegistrations, JSON.stringify(list), "development");
  expect(parsed).toHaveProperty("value");
});

test("two lists have the same content if they say the same, in whatever order and with or without the defaults", () => {
  const content = (value: unknown) => {
    const parsed = parse(value);
    if (!("value" in parsed)) throw new Error(parsed.problems.join("; "));
    return canonicalList(parsed.value);
  };
  const other = { ...least, clientId: "b", clientSecret: "another-long-enough-secret" };
  const explicit = {
    tokenSettings: { refreshGraceSeconds: 30, accessTokenSeconds: 900 },
    clientSettings: { mayIntrospect: false },
    scopes: [],
    clientName: "app",
    clientAuthenticationMethods: ["client_secret_basic"],
    ...least,
    clientSecret: [least.clientSecret],
  };
  expect(content([other, explicit])).toBe(content([least, other]));
  for (const change of [
    { clientSecret: "a-different-secret-altogether" },
    { clientSecret: [least.clientSecret, "the-secret-that-replaces-it"] },
    { clientName: "App" },
    { grantTypes: ["password"] },
    { grantTypes: [] },
    { scopes: ["a"] },
    { clientSettings: { mayIntrospect: true } },
    { tokenSettings: { refreshGraceSeconds: 31 } },
    { clientAuthenticationMethods: ["client_secret_post"] },
    { clientId: "c" },
  ]) {
    expect(content([{ ...least, ...change }])).not.toBe(content([least]));
  }
  expect(content([])).not.toBe(content([least]));
});

describe("a client of the method none", () => {
  const app = {
    clientId: "app",
    clientAuthenticationMethods: ["none"],
    grantTypes: ["authorization_code", "refresh_token"],
  };

  test("has no secret, and defaults of its own", () => {
    expect(parse([app])).toMatchObject({
      value: [
        {
          ...{ clientId: "app", clientSecrets: [], clientAuthenticationMethods: ["none"] },
          clientSettings: { audiences: [], mayIntrospect: false, signUp: false, attestationKeys: [] },
        },
      ],
    });
  });

  const grant = "must be one of authorization_code, refresh_token";
  test.each([
    [{ clientSecret: "a-long-enough-secret" }, "[0].clientSecret must not be there, as the method is none"],
    [{ clientAuthenticationMethods: ["none", "client_secret_basic"] }, "must be none alone, or without it"],
    [
      { clientSettings: { mayIntrospect: true } },
      "[0].clientSettings.mayIntrospect must not be true, as the method is none",
    ],
    [
      { clientSettings: { attestationKeys: ["hunter2"] } },
      "[0].clientSettings.attestationKeys[0] must be public keys",
    ],
    [{ grantTypes: [] }, "[0].grantTypes must name authorization_code, as the method is none"],
    [{ grantTypes: ["refresh_token"] }, "[0].grantTypes must name authorization_code, as the method is none"],
    ...["password", "auth", "phone_otp", "phone_otp_token", "client_credentials"].map(
      (one) => [{ grantTypes: ["authorization_code", one] }, `[0].grantTypes[1] ${grant}`] as const,
    ),
  ] as const)("%j is refused", (change, problem) => {
    expect(parse([{ ...app, ...change }])).toEqual({ problems: [expect.stringContaining(problem)] });
  });

  test("alone has the grant authorization_code", () => {
    const grantTypes = ["authorization_code"];
    expect(parse([{ ...least, grantTypes }])).toEqual({
      problems: [expect.stringContaining("[0].grantTypes[0] must be one of password, refresh_token")],
    });
  });
});
