/** What is said at start of settings that have no effect. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { rootCertificates } from "node:tls";
import { describe, expect, test } from "vitest";
import type { EnvironmentVariables } from "../src/platform/settings/environment.ts";
import { readSettings } from "../src/services.ts";
import { warningsOf } from "../src/setting-warnings.ts";
import { productionEnv } from "./auth/settings-fixture.ts";
import { killAll, startNode } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const dataDir = mkdtempSync(join(tmpdir(), "gatepost-warnings-"));
suiteCleanup().defer(() => {
  killAll();
  rmSync(dataDir, { recursive: true, force: true });
});

async function warnings(env: EnvironmentVariables): Promise<readonly string[]> {
  return warningsOf(env, await readSettings(env));
}
const development = (env: EnvironmentVariables = {}) => warnings({ DATA_DIR: dataDir, ...env });
const production = (env: EnvironmentVariables = {}) =>
  warnings({ ...productionEnv(), SERVICES: "auth", ...env });

test.each<[string, string, string]>([
  ["DB_PORT", "5432", "is not used: without DB_HOST the database is embedded"],
  ["AUTH_DB_NAME", "a", "is not used: without DB_HOST the database is embedded"],
  ["APNS_TOPIC", "com.example.app", "is not used: PUSH_PROVIDERS does not name apns"],
  ["PUSH_FCM_ENDPOINT", "https://fcm.example.com", "is not used: PUSH_PROVIDERS does not name fcm"],
  ["WEBPUSH_SUBJECT", "mailto:a@example.com", "is not used: PUSH_PROVIDERS does not name webpush"],
  ["CACHE_PORT", "6379", "is not used: CACHE_HOST is not set"],
  ["CACHE_HOTS", "cache", "is no setting; did you mean CACHE_HOST?"],
  ["BROKER_CREDENTIALS", "relay:secret", "is not used: BROKER_URL is not set"],
  ["PUSH_PROVIDER", "fcm", "is no setting; did you mean PUSH_PROVIDERS?"],
  ["SERVER_PROT", "80", "is no setting; did you mean SERVER_PORT?"],
  ["AUTH_SERVER_PORT", "80", "is no setting of this version"],
  ["AUTH_PUSH_PROVIDERS", "fcm", "is no setting of this version"],
  ["HISTORY_DAYS", "80", "is no setting of this version"],
  ["CACHE_URL", "redis://cache", "is no setting of this version"],
  ["SHUTDOWN_GRACE", "5", "is no setting of this version"],
  ["BACKOFFICE_CLIENT", "office", "is no setting of this version"],
  ["MANAGEMENT_HOST", "127.0.0.1", "is no setting of this version"],
  ["TEST_NOTIFICATION_USERS", "a", "is no setting of this version"],
  ["MEMORY_MAX_BYTES", "1", "is no setting of this version"],
])("development mode names %s=%s", async (name, value, what) => {
  expect(await development({ [name]: value })).toEqual([`${name} is set, but ${what}`]);
});

test.each<[string, string, string]>([
  ["DATA_DIR", "data", "NODE_ENV is production"],
  ["PUSH_PROVIDERS", "fcm", "SERVICES does not name push"],
  ["PUSH_DB_NAME", "push", "SERVICES does not name push"],
  ["PLATFORM_SECURITY_URL", "http://auth:9090", "SERVICES does not name push"],
  ["OTP_REGIONS", "DE", "OTP_VERIFIER is not set"],
  ["TWILIO_FROM", "+4915112345678", "OTP_VERIFIER is not set"],
])("production without push names %s=%s", async (name, value, why) => {
  expect(await production({ [name]: value })).toEqual([`${name} is set, but is not used: ${why}`]);
});

test("authorities have no use where nothing is encrypted", async () => {
  const ca = { DB_SSL_CA: rootCertificates[0], CACHE_CA: rootCertificates[0] };
  const hosts = { DB_HOST: "db", CACHE_HOST: "cache" };
  expect(await development({ ...hosts, ...ca })).toEqual([
    "DB_SSL_CA is set, but is not used: connections are not encrypted",
    "CACHE_CA is set, but is not used: connections are not encrypted",
  ]);
  expect(await development({ ...hosts, ...ca, DB_SSL: "require", CACHE_TLS: "YES" })).toEqual([]);
});

test("a key to ask with has no use without an address to ask at", async () => {
  const env = {
    ...productionEnv(),
    SERVICES: "push",
    IDENTITY_PROVIDER_ISSUER_URI: "https://id.example.com",
    USER_APP_CLIENT_ID: "app",
    BACKOFFICE_CLIENT_ID: "office",
    PUSH_PROVIDERS: "fcm",
    PLATFORM_SECURITY_API_KEY: "0123456789abcdef",
  };
  const { FCM_CREDENTIALS } = await fcmCredentials();
  const lines = await warnings({ ...env, FCM_CREDENTIALS });
  expect(lines).toContain(
    "PLATFORM_SECURITY_API_KEY is set, but is not used: PLATFORM_SECURITY_URL is not set",
  );
  expect(lines).toContain("OAUTH_SERVER_ISSUER is set, but is not used: SERVICES does not name auth");
  expect(lines.filter((line) => line.startsWith("DB_"))).toEqual([]);
  expect(await warnings({ ...env, FCM_CREDENTIALS, DB_READ_HOSTS: "standby.internal" })).toContain(
    "DB_READ_HOSTS is set, but is not used: only the introspection of auth reads from standbys",
  );
  const alone =
    "BROKER_URL is not set: a push service that runs apart does not learn which identities are deleted, nor which authorizations end";
  expect(lines).toContain(alone);
  expect(await warnings({ ...env, FCM_CREDENTIALS, BROKER_URL: "nats://nats.internal" })).not.toContain(
    alone,
  );
});

test.each([
  ["nats://a,nats://b", {}, true],
  ["nats://a,nats://b,nats://c", { BROKER_REPLICAS: "1" }, true],
  ["nats://a,nats://b,nats://c", {}, false],
  ["nats://a,nats://b", { BROKER_REPLICAS: "2" }, false],
  ["nats://a", {}, false],
])(
  "of the brokers %s with %o: whether one copy of each event is warned of is %s",
  async (url, env, isSaid) => {
    const lines = await development({ BROKER_URL: url, ...env });
    expect(lines).toEqual(isSaid ? [expect.stringMatching(/^BROKER_URL lists several servers, and/)] : []);
  },
);

test("a production server that knows the user that migrates is told that it need not", async () => {
  const reason = "in production only npm run migrate uses it, so a server need not know it";
  expect(await production({ DB_USER_MIGRATION: "owner", DB_PASSWORD_MIGRATION: "a-password" })).toEqual([
    `DB_USER_MIGRATION is set, but is not used: ${reason}`,
    `DB_PASSWORD_MIGRATION is set, but is not used: ${reason}`,
  ]);
});

describe("nothing is said", () => {
  test("of a production that sets what it needs", async () => {
    expect(await production({})).toEqual([]);
  });

  test("of a name that one of the services uses", async () => {
    expect(await development({ AUTH_DB_HOST: "db", DB_PORT: "5433" })).toEqual([]);
  });

  test("of what systems, shells, Node.js, npm and libraries set", async () => {
    const names = [
      ...["PATH", "HOME", "HOSTNAME", "PORT", "USER", "SHELL", "LANG", "PWD", "TERM", "TZ", "CI", "_"],
      ...["NODE_OPTIONS", "NODE_PATH", "NODE_EXTRA_CA_CERTS", "NODE_VERSION", "NODE_COMPILE_CACHE"],
      ...["npm_config_cache", "npm_lifecycle_event", "npm_package_name", "INIT_CWD", "EDITOR"],
      ...["GRPC_TRACE", "GRPC_VERBOSITY", "GRPC_DNS_RESOLVER", "SERVER_NAME", "SERVER_SOFTWARE"],
      ...["OTEL_LOG_LEVEL", "OTEL_EXPORTER_OTLP_TIMEOUT", "PLATFORM_ROUTES", "IDENTITY_ENDPOINT"],
      ...["EVENT_NOEPOLL", "USER_ID", "DATA_HOME", "ENABLE_COLORS", "ACCESS_KEY"],
      ...["MEMORY_PRESSURE_WATCH", "INVOCATION_ID", "JOURNAL_STREAM", "SERVICE_RESULT", "LISTEN_FDS"],
      ...["HISTFILE", "HISTSIZE", "HISTCONTROL", "SSH_AUTH_SOCK", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"],
      ...["KUBERNETES_SERVICE_HOST", "KUBERNETES_PORT", "GATEPOST_SERVICE_HOST", "GATEPOST_URL"],
      ...["PGHOST", "POSTGRES_PASSWORD", "TEST_POSTGRES_URL", "AWS_REGION", "HTTP_PROXY", "SSL_CERT_FILE"],
    ];
    expect(await development(Object.fromEntries(names.map((name) => [name, "x"])))).toEqual([]);
  });
});

test("the program logs them at start, and ends as it would have", async () => {
  // No address of this machine: it ends before it waits for a database.
  const away = { HOST: "203.0.113.1", DB_HOST: "127.0.0.1", DB_PORT: "1" };
  const program = startNode("src/start.js", { ...away, DATA_DIR: dataDir, DB_POLL_SIZE: "hunter2" });
  expect(await program.ended(), program.output()).toBe(1);
  expect(program.output()).toContain(
    "WARN: DB_POLL_SIZE is set, but is no setting; did you mean DB_POOL_SIZE?",
  );
  expect(program.output()).not.toContain("hunter2");
});

async function fcmCredentials() {
  const { newServiceAccount } = await import("../src/development/provider-fakes/credentials.ts");
  const account = await newServiceAccount("fake");
  return {
    FCM_CREDENTIALS: JSON.stringify({ ...account, token_uri: "https://oauth2.googleapis.com/token" }),
  };
}
