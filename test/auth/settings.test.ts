import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { developmentSecrets } from "../../src/development/secrets.ts";
import type { EnvironmentVariables } from "../../src/platform/settings/environment.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";
import { problemLines, problemsOf } from "../support/setting-problems.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { pemOf, production, productionEnv, readAll, readAuth, rsaKeys } from "./settings-fixture.ts";

let dataDir: string;
const cleanup = suiteCleanup();
beforeAll(() => {
  dataDir = mkdtempSync(join(tmpdir(), "auth-settings-"));
  cleanup.defer(() => rmSync(dataDir, { recursive: true }));
});

const read = (env: EnvironmentVariables) => readAuth({ DATA_DIR: dataDir, ...env });

describe("development", () => {
  test("needs nothing", async () => {
    const secrets = developmentSecrets(dataDir);
    const tokenSettings = {
      accessTokenSeconds: 900,
      refreshTokenSeconds: 2_592_000,
      refreshGraceSeconds: 30,
    };
    const { clients, ...settings } = await read({});
    expect(settings).toEqual({
      database: { kind: "embedded", dataDir: join(dataDir, "database") },
      issuer: "http://127.0.0.1:8080/api/auth",
      internalClient: { clientId: "internal", clientSecrets: ["internal-dev-secret"] },
      accessTokenType: "at+jwt",
      platformSecurityApiKeys: [secrets.apiKey],
      signing: { ...secrets.signing, publishedKeys: [] },
      otp: {
        issuer: "otp-verifier",
        publicKeys: [secrets.otp.publicKey],
        maxSeconds: 600,
        verifierUrl: "http://127.0.0.1:8080/otp-verifier",
        builtIn: true,
      },
      codes: {
        sender: { kind: "log" },
        text: "Your code is {code}. Never share it.",
        resendSeconds: 60,
        limits: {
          ...{ session: 3, phone_network: 5, phone: 10, address: 60, network: 120, prefix: 60, client: 1000 },
        },
      },
      firstPartyApps: { issuers: ["http://127.0.0.1:8080/api/auth", "http://localhost:8080/api/auth"] },
      janitorIntervalSeconds: 60,
    });
    expect(clients).toEqual([
      {
        clientId: "backend",
        clientSecrets: ["backend-dev-secret"],
        clientName: "Back end (development)",
        clientAuthenticationMethods: ["client_secret_basic"],
        grantTypes: ["password", "refresh_token", "phone_otp", "auth", "phone_otp_token"],
        scopes: ["profile", "orders"],
        clientSettings: { audiences: ["storefront", "push"], mayIntrospect: false },
        tokenSettings,
      },
      {
        clientId: "backoffice",
        clientSecrets: ["backoffice-dev-secret"],
        clientName: "Back office (development)",
        clientAuthenticationMethods: ["client_secret_basic"],
        grantTypes: ["client_credentials", "password", "refresh_token"],
        scopes: ["notifications:send"],
        clientSettings: { audiences: ["push"], mayIntrospect: false },
        tokenSettings,
      },
      expect.objectContaining({
        ...{ clientId: "api", clientSecrets: ["api-dev-secret"], grantTypes: [] },
        clientSettings: { audiences: [], mayIntrospect: true },
      }),
      expect.objectContaining({
        ...{ clientId: "app", clientSecrets: [], clientAuthenticationMethods: ["none"] },
        grantTypes: ["authorization_code", "refresh_token"],
        scopes: ["profile", "orders", "sessions"],
        clientSettings: expect.objectContaining({ audiences: ["storefront", "push"], signUp: true }),
      }),
    ]);
  });

  test.each([
    ["every IPv4 interface", { HOST: "0.0.0.0" }, "http://127.0.0.1:8080"],
    ["every interface", { HOST: "::" }, "http://127.0.0.1:8080"],
    ["IPv6", { HOST: "::1" }, "http://[::1]:8080"],
    ["a name", { HOST: "LocalHost", SERVER_PORT: "9000" }, "http://localhost:9000"],
    ["the scheme's own port", { SERVER_PORT: "80" }, "http://127.0.0.1"],
    [
      "TLS",
      { TLS_CERT: localhostCertificate.cert, TLS_KEY: localhostCertificate.key },
      "https://127.0.0.1:8080",
    ],
  ])("issuer and OTP verifier follow the server's address: %s", async (_, env, address) => {
    const { issuer, otp } = await read(env);
    expect([issuer, otp.verifierUrl, otp.builtIn]).toEqual([
      `${address}/api/auth`,
      `${address}/otp-verifier`,
      true,
    ]);
  });

  test.each([
    ["http://localhost:8080/otp-verifier/", true],
    ["http://[::1]:8080/otp-verifier/v2", true],
    ["http://localhost:8080/otp-verifiers", false],
    ["http://localhost:8081/otp-verifier", false],
    ["http://otp.example.com:8080/otp-verifier", false],
  ])("OTP_VERIFIER_URL=%s is the built-in verifier: %s", async (url, builtIn) => {
    expect((await read({ OTP_VERIFIER_URL: url })).otp.builtIn).toBe(builtIn);
  });

  test("generates nothing where everything is set", async () => {
    const empty = join(dataDir, "empty");
    await read(
      production({ NODE_ENV: "development", DATA_DIR: empty, PLATFORM_SECURITY_API_KEY: "x".repeat(16) }),
    );
    expect(() => readdirSync(empty)).toThrow(/ENOENT/);
  });

  test("a signing key that is set needs its public key and its id", async () => {
    const { RSA_PRIVATE_KEY } = productionEnv();
    expect(await problemLines(() => read({ RSA_PRIVATE_KEY }))).toEqual([
      "RSA_PUBLIC_KEY is missing, but RSA_PRIVATE_KEY is set",
      "RSA_KEY_ID is missing, but RSA_PRIVATE_KEY is set",
    ]);
  });

  test("damaged secrets are reported once, together with the rest", async () => {
    const damaged = mkdtempSync(join(dataDir, "damaged-"));
    writeFileSync(join(damaged, "development-secrets.json"), "{");
    const names = (await problemsOf(() => read({ DATA_DIR: damaged, DB_PORT: "x" }))).map(({ name }) => name);
    expect(names).toEqual(["DB_PORT", "DATA_DIR"]);
  });
});

describe("production", () => {
  test("takes what is complete", async () => {
    const env = production();
    const settings = await read(env);
    expect(settings).toMatchObject({
      database: { kind: "postgres", hosts: [{ host: "db.internal" }] },
      issuer: "https://auth.example.com/api/auth",
      internalClient: { clientId: "internal", clientSecrets: ["a-long-enough-internal-secret"] },
      platformSecurityApiKeys: [],
      signing: { privateKey: env.RSA_PRIVATE_KEY, publicKey: env.RSA_PUBLIC_KEY, keyId: "2025-01" },
      otp: { issuer: "otp-verifier", verifierUrl: "https://otp.internal", builtIn: false },
    });
  });

  test("reports every missing setting at once, each with an example, and generates nothing", async () => {
    const empty = join(dataDir, "production");
    const problems = await problemsOf(() => readAll({ NODE_ENV: "production", DATA_DIR: empty }));
    expect(problems.map(({ name }) => name)).toEqual([
      "DB_HOST",
      "DB_NAME",
      "DB_USER",
      "DB_PASSWORD",
      "OAUTH_SERVER_ISSUER",
      "OAUTH_SERVER_CLIENTS",
      "INTERNAL_CLIENT_ID",
      "INTERNAL_CLIENT_SECRET",
      "RSA_PRIVATE_KEY",
      "RSA_PUBLIC_KEY",
      "RSA_KEY_ID",
    ]);
    for (const { name, what, example } of problems) {
      expect(what).toMatch(/^is missing; it must be ./);
      expect(example.startsWith(name)).toBe(true);
    }
    expect(() => readdirSync(empty)).toThrow(/ENOENT/);
  });

  test("problems of server, database and auth come out together", async () => {
    const env = production({ SERVER_PORT: "x", AUTH_DB_PORT: "y", AUTH_JANITOR_INTERVAL_SECONDS: "0" });
    expect(await problemsOf(() => readAll(env))).toEqual([
      {
        name: "SERVER_PORT",
        what: 'must be an integer from 0 to 65535, but is "x"',
        example: "SERVER_PORT=8080",
      },
      {
        name: "AUTH_DB_PORT",
        what: 'must be an integer from 1 to 65535, but is "y"',
        example: "AUTH_DB_PORT=5432",
      },
      {
        name: "AUTH_JANITOR_INTERVAL_SECONDS",
        what: 'must be an integer from 1 to 86400, but is "0"',
        example: "AUTH_JANITOR_INTERVAL_SECONDS=60",
      },
    ]);
  });

  test.each(["http://localhost:8080/api/auth", "http://127.0.0.1/api/auth", "http://[::1]:8080"])(
    "takes http for an issuer on a loopback host: %s",
    async (issuer) => {
      expect((await read(production({ OAUTH_SERVER_ISSUER: issuer }))).issuer).toBe(issuer);
    },
  );
});

test("a secret that begins with a bracket is one of a JSON array", async () => {
  const env = production({ INTERNAL_CLIENT_SECRET: '["[a secret of its own]"]' });
  expect((await read(env)).internalClient.clientSecrets).toEqual(["[a secret of its own]"]);
});

test("AUTH_ overrides, and files are read", async () => {
  const { privateKey, publicKey } = rsaKeys();
  const path = join(dataDir, "key.pem");
  writeFileSync(path, pemOf(privateKey));
  const env = production({ AUTH_RSA_PRIVATE_KEY_FILE: path, AUTH_RSA_PUBLIC_KEY: pemOf(publicKey) });
  const { signing } = await read(env);
  expect([signing.privateKey, signing.publicKey]).toEqual([pemOf(privateKey), pemOf(publicKey)]);
});
