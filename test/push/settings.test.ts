/** The push service's settings: what development mode needs none of, and what production will not do without. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { developmentSecrets } from "../../src/development/secrets.ts";
import type { EnvironmentVariables } from "../../src/platform/settings/environment.ts";
import { readSettings } from "../../src/services.ts";
import { problemLines } from "../support/setting-problems.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
suiteCleanup().defer(() => rmSync(dataDir, { recursive: true, force: true }));

const development = (env: EnvironmentVariables = {}) => ({ DATA_DIR: dataDir, ...env });
const production = (env: EnvironmentVariables = {}) => ({
  NODE_ENV: "production",
  SERVICES: "push",
  DB_HOST: "db",
  DB_NAME: "gatepost",
  DB_USER: "gatepost",
  DB_PASSWORD: "a-password",
  IDENTITY_PROVIDER_ISSUER_URI: "https://id.example.com/api/auth",
  USER_APP_CLIENT_ID: "app",
  BACKOFFICE_CLIENT_ID: "office",
  PUSH_PROVIDERS: "apns",
  APNS_KEY: "",
  ...env,
});

async function read(env: EnvironmentVariables) {
  const { push } = await readSettings(env);
  if (!push) throw new Error("push does not run");
  return push;
}

describe("in development mode", () => {
  test("nothing has to be set, and callers are those of this server's auth service", async () => {
    expect(await read(development())).toEqual({
      database: { kind: "embedded", dataDir: join(dataDir, "database") },
      issuer: "http://127.0.0.1:8080/api/auth",
      audience: "push",
      introspection: { url: "http://127.0.0.1:9090", apiKey: developmentSecrets(dataDir).apiKey },
      userAppClientIds: ["app", "backend"],
      backofficeClientId: "backoffice",
      testUserIds: [],
      historyRetentionDays: 180,
      outcomeRetentionDays: 7,
      ttlSeconds: 86_400,
      maxDevicesPerUser: 20,
      maxSavesPerMinute: 60,
      delivery: { maxPerSecond: 0, rampSeconds: 0, maxDeadPercent: 30, removalDelaySeconds: 5 },
      providers: expect.objectContaining({ names: ["outbox"], outboxFile: join(dataDir, "outbox.ndjson") }),
      janitorIntervalSeconds: 60,
    });
  });

  test("the issuer is the auth service's, wherever it was moved to", async () => {
    const moved = {
      OAUTH_SERVER_ISSUER: "https://id.example.com/api/auth",
      GRPC_PORT: "9999",
      HOST: "0.0.0.0",
    };
    expect(await read(development(moved))).toMatchObject({
      issuer: "https://id.example.com/api/auth",
      introspection: { url: "http://127.0.0.1:9999" },
    });
    const elsewhere = { SERVICES: "push", SERVER_PORT: "8090" };
    expect((await read(development(elsewhere))).issuer).toBe("http://127.0.0.1:8090/api/auth");
  });

  test("another issuer's tokens are not asked about here, and need not be for our audience", async () => {
    const env = development({ IDENTITY_PROVIDER_ISSUER_URI: "https://id.example.com" });
    const foreign = { issuer: "https://id.example.com", introspection: undefined, audience: undefined };
    expect(await read(env)).toMatchObject(foreign);
    expect(await read({ ...env, TOKEN_AUDIENCE: "api" })).toMatchObject({ ...foreign, audience: "api" });
    const both = { ...env, PLATFORM_SECURITY_URL: "http://id.example.com:9090/" };
    expect(await read(both)).toMatchObject({ introspection: { url: "http://id.example.com:9090" } });
  });

  test("the audience is that of the clients, unless they were listed with others", async () => {
    const client = { clientId: "backend", clientSecret: "a-secret", grantTypes: ["auth"] };
    const listed = (clientSettings: object) =>
      read(development({ OAUTH_SERVER_CLIENTS: JSON.stringify([{ ...client, clientSettings }]) }));
    expect((await listed({ audiences: ["push"] })).audience).toBe("push");
    expect((await listed({ audiences: ["storefront"] })).audience).toBeUndefined();
    expect((await listed({})).audience).toBeUndefined();
  });

  test("plain JWTs of our own need an audience that tells them from other tokens", async () => {
    const client = { clientId: "backend", clientSecret: "a-secret", grantTypes: ["auth"] };
    const env = development({ ACCESS_TOKEN_TYPE: "JWT", OAUTH_SERVER_CLIENTS: JSON.stringify([client]) });
    expect(await problemLines(() => read(env))).toEqual([
      "TOKEN_AUDIENCE is missing, but ACCESS_TOKEN_TYPE is JWT: push would refuse every token",
    ]);
    expect((await read({ ...env, TOKEN_AUDIENCE: "push" })).audience).toBe("push");
    expect((await read(development({ ACCESS_TOKEN_TYPE: "JWT" }))).audience).toBe("push");
  });

  test.each(["backend", "backoffice"])("the audience is not the client %s, as ID tokens have", async (id) => {
    const env = development({ IDENTITY_PROVIDER_ISSUER_URI: "https://id.example.com", TOKEN_AUDIENCE: id });
    expect(await problemLines(() => read(env))).toEqual([
      `TOKEN_AUDIENCE must be the name of this API, and not the id of a client, which is the audience of ID tokens`,
    ]);
  });

  test("with credentials of ours the issuer itself is asked", async () => {
    const credentials = { IDENTITY_PROVIDER_CLIENT_ID: "push", IDENTITY_PROVIDER_CLIENT_SECRET: "s3cret" };
    const expected = { introspection: { clientId: "push", clientSecret: "s3cret" } };
    expect(await read(development(credentials))).toMatchObject(expected);
    const foreign = { ...credentials, IDENTITY_PROVIDER_ISSUER_URI: "https://tenant.eu.auth0.com/" };
    expect(await read(development(foreign))).toMatchObject({
      ...expected,
      issuer: "https://tenant.eu.auth0.com/",
    });
  });

  test("addresses that follow from a port follow the one that the system chose", async () => {
    const asked = await readSettings(development({ SERVER_PORT: "0", GRPC_PORT: "0" }));
    const { server, auth, push } = await asked.listeningOn({ http: 4711, grpc: 4712 });
    expect(server).toMatchObject({ port: 4711, grpcPort: 4712 });
    expect(auth).toMatchObject({
      issuer: "http://127.0.0.1:4711/api/auth",
      otp: { verifierUrl: "http://127.0.0.1:4711/otp-verifier", builtIn: true },
    });
    expect(push).toMatchObject({
      issuer: "http://127.0.0.1:4711/api/auth",
      introspection: { url: "http://127.0.0.1:4712" },
    });
  });

  test("settings of a server that got the ports it asked for stay as they are", async () => {
    const asked = await readSettings(development());
    expect(await asked.listeningOn({ http: 8080, grpc: 9090 })).toBe(asked);
  });
});

describe("in production mode", () => {
  const env = () => production({ PUSH_PROVIDERS: "webpush", ...webPush });
  const webPush = {
    WEBPUSH_VAPID_PRIVATE_KEY: "N3kNzB3_ZLuvfJYdE6Yh1u3GMqv7yJNu0BGU5EHpQqY",
    WEBPUSH_VAPID_PUBLIC_KEY: "",
    WEBPUSH_SUBJECT: "mailto:push@example.com",
  };

  test("everything that is missing is told at once", async () => {
    const lines = await problemLines(() => read({ NODE_ENV: "production", SERVICES: "push" }));
    expect(lines.map((line) => line.split(" ")[0])).toEqual([
      "DB_HOST",
      "DB_NAME",
      "DB_USER",
      "DB_PASSWORD",
      "IDENTITY_PROVIDER_ISSUER_URI",
      "USER_APP_CLIENT_ID",
      "BACKOFFICE_CLIENT_ID",
      "PUSH_PROVIDERS",
    ]);
  });

  test("what both services miss is told once, with what each of them misses", async () => {
    const lines = await problemLines(() => readSettings({ NODE_ENV: "production" }));
    expect(lines.filter((line) => line.startsWith("DB_HOST "))).toHaveLength(1);
    const names = lines.map((line) => line.split(" ")[0]);
    expect(names).toContain("OAUTH_SERVER_ISSUER");
    expect(names).toContain("IDENTITY_PROVIDER_ISSUER_URI");
  });

  test.each<[string, string, string]>([
    ["PLATFORM_SECURITY_URL", "https://id.example.com/api", "must be an http or https URL without a path"],
    ["PLATFORM_SECURITY_URL", "id.example.com:9090", "must be an http or https URL without a path"],
    ["PLATFORM_SECURITY_URL", "http://id.example.com", "must begin with https in production"],
    ["PLATFORM_SECURITY_API_KEY", "short", "must be 16 to 256 visible ASCII characters"],
    ["PLATFORM_SECURITY_API_KEY", "dev-0123456789abcdef", "must not be a key made by development mode"],
    ["IDENTITY_PROVIDER_ISSUER_URI", "http://id.example.com", "must begin with https in production"],
    ["IDENTITY_PROVIDER_ISSUER_URI", "https://ID.example.com/", "must be spelled https://id.example.com/"],
    ["IDENTITY_PROVIDER_ISSUER_URI", "https://id.example.com?a", "must be an http or https URL without user"],
    ["IDENTITY_PROVIDER_CLIENT_ID", "push", "must not be set together with PLATFORM_SECURITY_URL"],
    ["BACKOFFICE_CLIENT_ID", "app", "must differ from USER_APP_CLIENT_ID"],
    [
      "TEST_NOTIFICATION_USER_IDS",
      "u-1,a\tb",
      "[1] must be 1 to 256 characters without a comma and without control characters",
    ],
    ["HISTORY_RETENTION_DAYS", "0", "must be an integer from 1 to 3650"],
    ["PUSH_MAX_DEVICES_PER_USER", "0", "must be an integer from 1 to 1000"],
    ["PUSH_MAX_PER_SECOND", "-1", "must be an integer from 0 to 1000000"],
    ["PUSH_TTL_SECONDS", "2419201", "must be an integer from 60 to 2419200"],
    ["PUSH_MAX_DEAD_PERCENT", "101", "must be an integer from 1 to 100"],
    ["PUSH_PROVIDERS", "outbox", "must not list outbox in production"],
    ["SERVICES", "push,mail", "[1] must be one of auth, push"],
    ["SERVICES", ",", "[0] must be one of auth, push"],
  ])("%s=%s is refused", async (name, value, what) => {
    const asked = name === "IDENTITY_PROVIDER_CLIENT_ID" && { PLATFORM_SECURITY_URL: "http://auth:9090" };
    const lines = await problemLines(() => readSettings({ ...env(), ...asked, [name]: value }));
    expect(lines.filter((line) => line.startsWith(`${name} ${what}`))).toHaveLength(1);
  });

  test("an address to ask at needs a key to ask with, and a client its secret", async () => {
    const lines = await problemLines(() => read({ ...env(), PLATFORM_SECURITY_URL: "http://auth:9090" }));
    expect(lines).toContain("PLATFORM_SECURITY_API_KEY is missing, but PLATFORM_SECURITY_URL is set");
    const [id, secret] = ["IDENTITY_PROVIDER_CLIENT_ID", "IDENTITY_PROVIDER_CLIENT_SECRET"];
    expect(await problemLines(() => read({ ...env(), [id]: "push" }))).toContain(
      `${secret} is missing, but ${id} is set`,
    );
    expect(await problemLines(() => read({ ...env(), [secret]: "s3cret" }))).toContain(
      `${id} is missing, but ${secret} is set`,
    );
  });

  test("a name with the prefix PUSH_ goes before the plain one, and has no part in auth's settings", async () => {
    const names = development({
      PUSH_DB_HOST: "push-db",
      JANITOR_INTERVAL_SECONDS: "30",
      PUSH_JANITOR_INTERVAL_SECONDS: "90",
      PUSH_PLATFORM_SECURITY_API_KEY: "0123456789abcdef",
      AUTH_PLATFORM_SECURITY_API_KEY: "0123456789abcdef",
    });
    const { auth, push } = await readSettings(names);
    expect(push).toMatchObject({
      database: { kind: "postgres", hosts: [{ host: "push-db" }] },
      janitorIntervalSeconds: 90,
      introspection: { apiKey: "0123456789abcdef" },
    });
    expect(auth).toMatchObject({ database: { kind: "embedded" }, janitorIntervalSeconds: 30 });
  });

  test("of two keys for PLATFORM_SECURITY_URL, the first is sent", async () => {
    const env = development({ PLATFORM_SECURITY_API_KEY: '["the-new-key-00000","the-old-key-00000"]' });
    expect(await read(env)).toMatchObject({ introspection: { apiKey: "the-new-key-00000" } });
  });

  test("a service that does not run is asked for nothing", async () => {
    const settings = await readSettings(development({ SERVICES: "auth", PUSH_PROVIDERS: "nonsense" }));
    expect(settings.push).toBeUndefined();
    expect(settings.auth).toBeDefined();
  });
});
