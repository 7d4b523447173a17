import { createPublicKey } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { developmentSecrets } from "../../src/development/secrets.ts";
import { killAll, startNode } from "../support/program.ts";
import { problemLines, problemsOf } from "../support/setting-problems.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { pemOf, production, readAll, readAuth, rsaKeys } from "./settings-fixture.ts";

const cleanup = suiteCleanup();
cleanup.defer(killAll);

describe("production", () => {
  const clients = (clientSecret: string) =>
    JSON.stringify([{ clientId: "app", clientSecret, grantTypes: ["password"] }]);
  const tooPlain =
    "must have at least 6 different characters in production; openssl rand -hex 32 makes a good one";
  const ofDocumentation =
    "must not be an example of the documentation; openssl rand -hex 32 makes a good one";
  const cleartext = (url: string) =>
    `must begin with https in production, as its host is public, but is "${url}"`;
  const two = (second: string) => `["the-first-of-two-secrets","${second}"]`;
  const oneOrTwo = "must be a secret, or an array of one or two different ones";
  const ofAClient = "must not be the secret of a client in OAUTH_SERVER_CLIENTS";
  const devSecret = "must not be a secret of development mode";
  test.each([
    ["INTERNAL_CLIENT_SECRET", "internal-dev-secret", devSecret],
    ["INTERNAL_CLIENT_SECRET", "backend-dev-secret", devSecret],
    ["INTERNAL_CLIENT_SECRET", two("internal-dev-secret"), `[1] ${devSecret}`],
    ["INTERNAL_CLIENT_SECRET", ` ${two("internal-dev-secret")}`, `[1] ${devSecret}`],
    ["INTERNAL_CLIENT_SECRET", `\n${two("internal-dev-secret")}\n`, `[1] ${devSecret}`],
    ["INTERNAL_CLIENT_SECRET", two("x".repeat(15)), "[1] must have at least 16 characters in production"],
    ["INTERNAL_CLIENT_SECRET", two("a-long-enough-secret"), ofAClient],
    ["INTERNAL_CLIENT_SECRET", two("the-first-of-two-secrets"), "must not name the same twice"],
    ["INTERNAL_CLIENT_SECRET", "[]", oneOrTwo],
    ["INTERNAL_CLIENT_SECRET", two('the-second-of-three","the-third-of-three'), oneOrTwo],
    ["INTERNAL_CLIENT_SECRET", '["not-the-end-of-it"', `${oneOrTwo}, but is not JSON from character 20 on`],
    ["INTERNAL_CLIENT_SECRET", "x".repeat(15), "must have at least 16 characters in production"],
    ["OAUTH_SERVER_CLIENTS", clients("internal-dev-secret"), `[0].clientSecret ${devSecret}`],
    ["OAUTH_SERVER_CLIENTS", clients("backend-dev-secret"), `[0].clientSecret ${devSecret}`],
    ["OAUTH_SERVER_CLIENTS", clients("backoffice-dev-secret"), `[0].clientSecret ${devSecret}`],
    [
      "OAUTH_SERVER_CLIENTS",
      clients("x".repeat(15)),
      "[0].clientSecret must have at least 16 characters in production",
    ],
    [
      "RSA_KEY_ID",
      "dev-0123456789ab",
      'must not be that of a key made by development mode, but is "dev-0123456789ab"',
    ],
    ["PLATFORM_SECURITY_API_KEY", `dev-${"x".repeat(32)}`, "must not be a key made by development mode"],
    [
      "PLATFORM_SECURITY_API_KEY",
      two("dev-0123456789abcdef"),
      "[1] must not be a key made by development mode",
    ],
    ["PLATFORM_SECURITY_API_KEY", two("hunter2"), "[1] must be 16 to 256 visible ASCII characters"],
    [
      "OTP_VERIFIER_URL",
      "http://localhost:8080/otp-verifier",
      "must not be the verifier of development mode",
    ],
    ["OTP_VERIFIER_URL", "http://0.0.0.0:8080/otp-verifier/", "must not be the verifier of development mode"],
    ["INTERNAL_CLIENT_SECRET", "a".repeat(16), tooPlain],
    ["OAUTH_SERVER_CLIENTS", clients("abcde".repeat(8)), `[0].clientSecret ${tooPlain}`],
    ["OAUTH_SERVER_CLIENTS", clients("at least 16 characters"), `[0].clientSecret ${ofDocumentation}`],
    ["INTERNAL_CLIENT_SECRET", "an example secret of mine", ofDocumentation],
    ["PLATFORM_SECURITY_API_KEY", "changeme-changeme-changeme", ofDocumentation],
    ["OTP_VERIFIER_URL", "http://otp.example.com", cleartext("http://otp.example.com")],
    ["OTP_VERIFIER_URL", "http://8.8.8.8", cleartext("http://8.8.8.8")],
    ["OTP_VERIFIER_URL", "http://[2001:db8::1]", cleartext("http://[2001:db8::1]")],
    ["OTP_VERIFIER_URL", "http://172.32.0.1", cleartext("http://172.32.0.1")],
    [
      "OAUTH_SERVER_ISSUER",
      "http://auth.example.com",
      'must begin with https in production, but is "http://auth.example.com"',
    ],
  ])("refuses %s=%s", async (name, value, what) => {
    expect(await problemLines(() => readAuth(production({ [name]: value })))).toEqual([`${name} ${what}`]);
  });
});

test("production refuses the keys that development mode has made, whatever their ids", async () => {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-keys-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const { signing, otp } = developmentSecrets(directory);
  const { n, e } = createPublicKey(signing.publicKey).export({ format: "jwk" });
  const settings = {
    RSA_PRIVATE_KEY: signing.privateKey,
    RSA_PUBLIC_KEY: signing.publicKey,
    RSA_KEY_ID: "2026-11",
    RSA_PUBLISHED_KEYS: JSON.stringify({ keys: [{ kty: "RSA", kid: "next", n, e }] }),
    OTP_VERIFICATION_TOKEN_PUBLIC_KEY: otp.publicKey,
  };
  const what = "must not be a key made by development mode";
  expect(await problemLines(() => readAuth(production(settings)))).toEqual([
    `RSA_PRIVATE_KEY ${what}`,
    `RSA_PUBLISHED_KEYS keys[0] ${what}`,
    `OTP_VERIFICATION_TOKEN_PUBLIC_KEY ${what}`,
  ]);
});

test.each([
  "http://otp",
  "http://otp.internal",
  "http://otp.auth.svc:8080/v1",
  "http://otp.auth.svc.cluster.local",
  "http://127.0.0.1:8080",
  "http://10.1.2.3",
  "http://172.31.0.1",
  "http://[fd00::1]:8080",
  "https://otp.example.com",
])("production asks the OTP verifier at %s", async (url) => {
  expect((await readAuth(production({ OTP_VERIFIER_URL: url }))).otp.verifierUrl).toBe(url);
});

describe("hostile values", () => {
  const issuer = "must be an http or https URL without user, query, fragment and trailing slash";
  test.each([
    ["OAUTH_SERVER_ISSUER", "auth.example.com", issuer],
    ["OAUTH_SERVER_ISSUER", "javascript:alert(1)", issuer],
    ["OAUTH_SERVER_ISSUER", "https:auth.example.com", issuer],
    ["OAUTH_SERVER_ISSUER", "https://auth.example.com/", issuer],
    ["OAUTH_SERVER_ISSUER", "https://auth.example.com?", issuer],
    ["OAUTH_SERVER_ISSUER", "https://auth.example.com/#", issuer],
    ["OAUTH_SERVER_ISSUER", "https://me:hunter2@auth.example.com", issuer],
    ["OAUTH_SERVER_ISSUER", "https://*.example.com", issuer],
    ["OAUTH_SERVER_ISSUER", "https://Auth.example.com", "must be spelled https://auth.example.com"],
    ["OAUTH_SERVER_ISSUER", "https://auth.example.com:443/a", "must be spelled https://auth.example.com/a"],
    ["OAUTH_SERVER_ISSUER", " https://auth.example.com", issuer],
    ["OAUTH_SERVER_ISSUER", "https://auth.example.com/a/../b", "must be spelled https://auth.example.com/b"],
    [
      "OTP_VERIFIER_URL",
      "https://me:hunter2@otp.internal",
      "must be an http or https URL without user, query and fragment",
    ],
    [
      "OTP_VERIFIER_URL",
      "https://otp.internal/?a",
      "must be an http or https URL without user, query and fragment",
    ],
    ["OTP_VERIFICATION_TOKEN_ISSUER", "a\nb", "must be text without control characters"],
    ["INTERNAL_CLIENT_ID", "a b", "must be 1 to 128 visible ASCII characters"],
    ["INTERNAL_CLIENT_ID", "ä", "must be 1 to 128 visible ASCII characters"],
    ["INTERNAL_CLIENT_ID", "x".repeat(129), "must be 1 to 128 visible ASCII characters"],
    ["INTERNAL_CLIENT_ID", "app", "must not be the id of a client in OAUTH_SERVER_CLIENTS"],
    ["INTERNAL_CLIENT_SECRET", "hunter2 hunter2 \u0000", "must be printable ASCII characters"],
    ["PLATFORM_SECURITY_API_KEY", "hunter2", "must be 16 to 256 visible ASCII characters"],
    ["RSA_KEY_ID", "a b", "must be 1 to 128 visible ASCII characters"],
  ])("%s=%s", async (name, value, what) => {
    const lines = await problemLines(() => readAuth(production({ [name]: value })));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`${name} ${what}`);
    expect(lines[0]).not.toContain("hunter2");
  });
});

test.each([
  ["phone_otp", "OTP_VERIFIER_URL", "an http or https URL"],
  ["phone_otp_token", "OTP_VERIFICATION_TOKEN_PUBLIC_KEY", "public keys"],
])("the grant %s needs %s, and no other grant does", async (grant, name, expected) => {
  const client = { clientId: "app", clientSecret: "a-long-enough-secret" };
  const withGrants = (grantTypes: readonly string[]) =>
    production({ [name]: undefined, OAUTH_SERVER_CLIENTS: JSON.stringify([{ ...client, grantTypes }]) });
  const lines = await problemLines(() => readAuth(withGrants(["auth", grant])));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain(`${name} is missing, but app has the grant ${grant}; it must be ${expected}`);
  const others = ["password", "refresh_token", "auth", "phone_otp", "phone_otp_token"].filter(
    (one) => one !== grant,
  );
  await readAuth(withGrants(others));
});

test.each([
  [{}, ["OTP_SENDER is missing", "OTP_REGIONS is missing"]],
  [{ OTP_SENDER: "log", OTP_REGIONS: "DE" }, ["OTP_SENDER must be webhook or twilio in production"]],
  [
    { OTP_SENDER: "webhook", OTP_REGIONS: "DE,XX", OTP_WEBHOOK_SECRET: "whsec_short" },
    ["OTP_REGIONS [1] must be", "OTP_WEBHOOK_SECRET must be whsec_", "OTP_WEBHOOK_URL is missing"],
  ],
  [
    {
      OTP_SENDER: "webhook",
      OTP_REGIONS: "DE",
      OTP_WEBHOOK_URL: "https://sms.internal",
      OTP_RESEND_SECONDS: "301",
    },
    ["OTP_RESEND_SECONDS must be", "OTP_WEBHOOK_SECRET is missing"],
  ],
  [
    { FIRST_PARTY_APPS: "off", OTP_SENDER: "webhook", OTP_REGIONS: "DE" },
    [
      "FIRST_PARTY_APPS must be on, as OTP_VERIFIER is set",
      "OTP_WEBHOOK_URL is missing",
      "OTP_WEBHOOK_SECRET is missing",
    ],
  ],
  [
    { OTP_SENDER: "twilio", OTP_REGIONS: "DE", TWILIO_FROM: "+4915112345678" },
    ["TWILIO_ACCOUNT_SID is missing", "TWILIO_AUTH_TOKEN is missing"],
  ],
  [
    { OTP_SENDER: "webhook", OTP_REGIONS: "DE", OTP_WEBHOOK_URL: "http://sms.example.com", OTP_TEXT: "no" },
    ["OTP_TEXT must be", "OTP_WEBHOOK_SECRET is missing", "OTP_WEBHOOK_URL must begin with https"],
  ],
] as const)("the built-in verifier with %o lacks something", async (settings, expected) => {
  const lines = await problemLines(() =>
    readAuth(production({ OTP_VERIFIER: "builtin", FIRST_PARTY_APPS: "on", ...settings })),
  );
  expect(lines).toHaveLength(expected.length);
  for (const one of expected) expect(lines.join()).toContain(one);
});

test("a client without a secret needs FIRST_PARTY_APPS", async () => {
  const app = { clientId: "app", clientAuthenticationMethods: ["none"], grantTypes: ["authorization_code"] };
  const OAUTH_SERVER_CLIENTS = JSON.stringify([app]);
  const lines = await problemLines(() => readAuth(production({ OAUTH_SERVER_CLIENTS })));
  expect(lines.join()).toContain("FIRST_PARTY_APPS must be on, as app has the method none");
  const without = await problemLines(() =>
    readAuth(production({ OAUTH_SERVER_CLIENTS, FIRST_PARTY_APPS: "on" })),
  );
  expect(without.join()).toContain("OTP_VERIFIER is missing, but FIRST_PARTY_APPS is on");
});

test("a start ends with exit code 78 where a client without a secret has grants of one with it", async () => {
  const grantTypes = ["authorization_code", "password", "auth", "phone_otp", "phone_otp_token"];
  const app = { clientId: "app", clientAuthenticationMethods: ["none"], grantTypes };
  const program = startNode("src/main.ts", {
    ...{ NODE_ENV: "development", SERVICES: "auth", OAUTH_SERVER_CLIENTS: JSON.stringify([app]) },
  });
  expect(await program.ended(), program.output()).toBe(78);
  for (const place of [1, 2, 3, 4]) expect(program.stderr()).toContain(`grantTypes[${place}] must be one of`);
});

test("a message holds no secret, whatever is wrong", async () => {
  const secret = "hunter2-hunter2-hunter2";
  const wrong = {
    DB_PASSWORD: `${secret}\n`,
    OAUTH_SERVER_CLIENTS: `[{"clientId": 1, "clientSecret": "${secret}\\n"}, "${secret}", {"clientSecret": ["${secret}"]}]`,
    INTERNAL_CLIENT_SECRET: `${secret}\n`,
    PLATFORM_SECURITY_API_KEY: `${secret} `,
    RSA_PRIVATE_KEY: secret,
    RSA_PUBLIC_KEY: `-----BEGIN PUBLIC KEY-----\n${secret}\n-----END PUBLIC KEY-----`,
    RSA_PUBLISHED_KEYS: `{"keys":[{"kty":"oct","k":"${secret}"}, ${secret}`,
    OTP_VERIFICATION_TOKEN_PUBLIC_KEY: pemOf(rsaKeys().privateKey),
    OTP_WEBHOOK_SECRET: secret,
    TWILIO_AUTH_TOKEN: `${secret} `,
    TLS_KEY: secret,
  };
  const problems = await problemsOf(() => readAll(production(wrong)));
  expect(new Set(problems.map(({ name }) => name))).toEqual(new Set(Object.keys(wrong)));
  await expect(readAll(production(wrong))).rejects.not.toThrow(/hunter2|MII/);
});
