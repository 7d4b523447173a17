import { execFileSync, spawn } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { settingsTable } from "../../../scripts/settings-doc.ts";
import { authTable } from "../../../src/auth/settings-table.ts";
import { cacheTable } from "../../../src/platform/cache/cache-settings.ts";
import { databaseTable, migrationTable } from "../../../src/platform/database/settings.ts";
import { brokerTable } from "../../../src/platform/messaging/broker-settings.ts";
import { tracingTable } from "../../../src/platform/observability/tracing-settings.ts";
import type { EnvironmentVariables } from "../../../src/platform/settings/environment.ts";
import { parse } from "../../../src/platform/settings/kinds.ts";
import {
  environmentTable,
  resolveServerSettings,
  serverTable,
} from "../../../src/platform/settings/server.ts";
import {
  exampleOf,
  type Setting,
  type SettingsTable,
  valueOrThrow,
} from "../../../src/platform/settings/settings.ts";
import { providerTable } from "../../../src/push/provider-settings.ts";
import { pushTable } from "../../../src/push/settings-table.ts";
import { servicesTable } from "../../../src/services.ts";
import { localhostCertificate, weakLocalhostCertificate } from "../../support/localhost-certificate.ts";
import { problemLines } from "../../support/setting-problems.ts";

const read = (env: EnvironmentVariables) => valueOrThrow(resolveServerSettings(env));

const defaults = {
  environment: "development",
  host: "127.0.0.1",
  port: 8080,
  grpcPort: 9090,
  managementPort: 8081,
  workers: 1,
  tls: undefined,
  corsOrigins: ["http://localhost:5173"],
  trustedProxies: [],
  logLevel: "info",
  eventLog: undefined,
  shutdownDelaySeconds: 0,
  shutdownGraceSeconds: 20,
  memoryMinMb: undefined,
  memoryMaxMb: undefined,
  dataDir: ".data",
};

describe("defaults", () => {
  test.each([undefined, "", "development", "test", "staging"])("NODE_ENV=%s is development", (mode) => {
    expect(read({ NODE_ENV: mode })).toEqual(defaults);
  });

  test.each([
    "Production",
    "PRODUCTION",
    "prod",
    "Prod",
    "production ",
    "prodution",
    "prodcution",
    "productions",
  ])("NODE_ENV=%j is refused, as production was meant", async (mode) => {
    expect(await problemLines(() => read({ NODE_ENV: mode }))).toEqual([
      `NODE_ENV must be spelled production, or be another word for development, but is ${JSON.stringify(mode)}`,
    ]);
  });

  test("production listens on every interface, and lets no page in", () => {
    const expected = {
      ...defaults,
      ...{ environment: "production", host: "0.0.0.0", shutdownDelaySeconds: 2, corsOrigins: [] },
    };
    expect(read({ NODE_ENV: "production" })).toEqual(expected);
  });
});

describe("values", () => {
  test.each([
    [{ HOST: "::1" }, { host: "::1" }],
    [
      { SERVER_PORT: "0", GRPC_PORT: "0", MANAGEMENT_PORT: "0" },
      { port: 0, grpcPort: 0, managementPort: 0 },
    ],
    [{ SERVER_PORT: "65535" }, { port: 65535 }],
    [{ LOGGING_LEVEL: "WARN" }, { logLevel: "warn" }],
    [{ LOGGING_LEVEL: "error", ENABLE_DEBUG: "YES" }, { logLevel: "debug" }],
    [{ LOGGING_LEVEL: "trace", ENABLE_DEBUG: "yes" }, { logLevel: "trace" }],
    [{ LOGGING_LEVEL: "warn", ENABLE_DEBUG: "NO" }, { logLevel: "warn" }],
    [
      { MEMORY_MIN_MB: "256", MEMORY_MAX_MB: "256" },
      { memoryMinMb: 256, memoryMaxMb: 256 },
    ],
    [
      { CORS_ORIGINS: "https://a.example, http://b.example:81" },
      { corsOrigins: ["https://a.example", "http://b.example:81"] },
    ],
    [{ TRUSTED_PROXIES: "10.0.0.0/8, ::1" }, { trustedProxies: ["10.0.0.0/8", "::1"] }],
  ])("%j", (env, expected) => {
    expect(read(env)).toEqual({ ...defaults, ...expected });
  });
});

describe("hostile values", () => {
  const anyPort = "must be an integer from 0 to 65535";
  const origin = "must be an origin such as https://app.example.com";
  test.each([
    ["SERVER_PORT", "65536", anyPort],
    ["GRPC_PORT", "65536", anyPort],
    ["MANAGEMENT_PORT", "-1", anyPort],
    ["SERVER_PORT", "-1", anyPort],
    ["SERVER_PORT", "80.5", anyPort],
    ["SERVER_PORT", "0x50", anyPort],
    ["SERVER_PORT", "8e1", anyPort],
    ["SERVER_PORT", " 80", anyPort],
    ["SERVER_PORT", "80\n", anyPort],
    ["SERVER_PORT", "٨٠", anyPort],
    ["SERVER_PORT", "9".repeat(400), anyPort],
    ["HOST", "http://0.0.0.0", "must be a host name or an IP address"],
    ["HOST", "localhost:80", "must be a host name or an IP address"],
    ["HOST", "a b", "must be a host name or an IP address"],
    ["HOST", `${"a.".repeat(150)}a`, "must be a host name or an IP address"],
    ["LOGGING_LEVEL", "verbose", "must be one of trace, debug, info, warn, error"],
    ["LOGGING_LEVEL", "toString", "must be one of trace, debug, info, warn, error"],
    ["ENABLE_DEBUG", "true", "must be YES or NO"],
    ["SHUTDOWN_GRACE_SECONDS", "3601", "must be an integer from 0 to 3600"],
    ["TRUSTED_PROXIES", "10.0.0.0/33", "[0] must be an address or a network in CIDR notation, but not /0"],
    ["TRUSTED_PROXIES", "0.0.0.0/0", "[0] must be an address or a network in CIDR notation, but not /0"],
    ["TRUSTED_PROXIES", "::/0", "[0] must be an address or a network in CIDR notation, but not /0"],
    ["TRUSTED_PROXIES", "10.0.0.0/8/8", "[0] must be an address or a network in CIDR notation, but not /0"],
    [
      "TRUSTED_PROXIES",
      "fd00::/8,balancer",
      "[1] must be an address or a network in CIDR notation, but not /0",
    ],
    ["CORS_ORIGINS", "*", `[0] ${origin}`],
    ["CORS_ORIGINS", "null", `[0] ${origin}`],
    ["CORS_ORIGINS", "https://a.example/", `[0] ${origin}`],
    ["CORS_ORIGINS", "https://A.example", `[0] ${origin}`],
    ["CORS_ORIGINS", "https://a.example:443", `[0] ${origin}`],
    ["CORS_ORIGINS", "https://*.example", `[0] ${origin}`],
    ["CORS_ORIGINS", "https://a.example,,https://b.example", `[1] ${origin}`],
    ["CORS_ORIGINS", "ftp://a.example", `[0] ${origin}`],
    ["MEMORY_MAX_MB", "1", "must be an integer from 64 to 1048576"],
    ["DATA_DIR", "a\u0007", "must be text without control characters"],
  ])("%s=%j", async (name, value, what) => {
    const [line, ...others] = await problemLines(() => read({ [name]: value }));
    expect(line?.startsWith(`${name} ${what}, but is "`), line).toBe(true);
    expect(others).toEqual([]);
  });
});

describe("settings that must agree", () => {
  const pair = localhostCertificate;
  const other = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  const otherKey = other.export({ type: "pkcs8", format: "pem" }).toString();
  const lines = (env: Record<string, string>) => problemLines(() => read(env));

  test("a certificate and its key", () => {
    const settings = read({ TLS_CERT: pair.cert.replaceAll("\n", "\\n"), TLS_KEY: pair.key });
    expect(settings.tls?.key).toBe(pair.key);
    expect(settings.tls?.cert).toBe(pair.cert);
  });

  test("a chain of certificates is kept whole, and checked to its end", async () => {
    const chain = pair.cert + pair.cert;
    expect(read({ TLS_CERT: chain, TLS_KEY: pair.key }).tls?.cert).toBe(chain);
    const broken = `${pair.cert}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`;
    expect(await lines({ TLS_CERT: broken, TLS_KEY: pair.key })).toEqual([
      "TLS_CERT must be certificates in PEM form, but its CERTIFICATE cannot be decoded",
    ]);
  });

  test("one without the other", async () => {
    expect(await lines({ TLS_CERT: pair.cert })).toEqual(["TLS_KEY is missing, but TLS_CERT is set"]);
    expect(await lines({ TLS_KEY: pair.key })).toEqual(["TLS_CERT is missing, but TLS_KEY is set"]);
  });

  test("a certificate and another key", async () => {
    const expected = ["TLS_KEY does not belong to the certificate in TLS_CERT"];
    expect(await lines({ TLS_CERT: pair.cert, TLS_KEY: otherKey })).toEqual(expected);
  });

  test("a certificate that OpenSSL refuses", async () => {
    const { cert, key } = weakLocalhostCertificate;
    expect(await lines({ TLS_CERT: cert, TLS_KEY: key })).toEqual([
      "TLS_CERT is refused by OpenSSL (ERR_SSL_EE_KEY_TOO_SMALL); RSA of 2048 bits or more, or EC P-256, signed with SHA-256, is taken",
    ]);
  });

  test("a certificate and its key are read again from files, but not from a pipe", async () => {
    const folder = mkdtempSync(join(tmpdir(), "gatepost-test-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const inFolder = (name: string) => join(folder, name);
    const [TLS_CERT_FILE, TLS_KEY_FILE, pipe] = [inFolder("cert"), inFolder("key"), inFolder("pipe")];
    writeFileSync(TLS_CERT_FILE, pair.cert);
    writeFileSync(TLS_KEY_FILE, pair.key);
    expect(read({ TLS_CERT_FILE, TLS_KEY_FILE }).rereadTls?.()).toEqual({ value: pair });
    expect(await lines({ TLS_CERT_FILE, TLS_KEY_FILE: "a".repeat(5_000) })).toEqual([
      expect.stringMatching(/^TLS_KEY_FILE names .* cannot be read as text \(ENAMETOOLONG\)$/),
    ]);
    execFileSync("mkfifo", [pipe]);
    spawn("sh", ["-c", 'printf %s "$1" > "$0"', pipe, pair.key]);
    expect(read({ TLS_CERT_FILE, TLS_KEY_FILE: pipe })).toMatchObject({ tls: pair, rereadTls: undefined });
  });

  test("an encrypted key", async () => {
    const options = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" } as const;
    const key = other.export(options).toString();
    const what = "must be an unencrypted private key in PEM form, but holds a block ENCRYPTED PRIVATE KEY";
    expect(await lines({ TLS_CERT: pair.cert, TLS_KEY: key })).toEqual([`TLS_KEY ${what}`]);
  });

  test("heap sizes", async () => {
    expect(await lines({ MEMORY_MIN_MB: "512", MEMORY_MAX_MB: "256" })).toEqual([
      "MEMORY_MIN_MB must not be more than MEMORY_MAX_MB, which is 256",
    ]);
  });

  test("ports", async () => {
    expect(await lines({ SERVER_PORT: "9090", MANAGEMENT_PORT: "9090" })).toEqual([
      "GRPC_PORT must differ from SERVER_PORT, which is 9090 too",
      "MANAGEMENT_PORT must differ from SERVER_PORT, which is 9090 too",
    ]);
  });
});

test("with problems everywhere there is still a value to read on with", () => {
  const bad = Object.fromEntries(Object.keys(serverTable).map((name) => [name, "\u0000"]));
  const { value, problems } = resolveServerSettings(bad);
  expect(value).toEqual(defaults);
  expect(problems.map(({ name }) => name)).toEqual(Object.keys(bad));
});

test("an environment that cannot be read is taken for production", async () => {
  const lines = await problemLines(() => read({ NODE_ENV_FILE: "/nowhere" }));
  expect(lines).toEqual(['NODE_ENV_FILE names "/nowhere", which cannot be read as text (ENOENT)']);
  expect(resolveServerSettings({ NODE_ENV_FILE: "/nowhere" }).value.environment).toBe("production");
});

describe("every row", () => {
  const rows: readonly (readonly [string, Setting<unknown>])[] = [
    environmentTable,
    servicesTable,
    serverTable,
    databaseTable,
    migrationTable,
    brokerTable,
    cacheTable,
    tracingTable,
    authTable,
    pushTable,
    providerTable,
  ].flatMap((table: SettingsTable) => Object.entries(table));

  test.each(rows)("%s has an example that production takes", (name, row) => {
    const [variable, value = ""] = exampleOf(name, row).split("=");
    if (variable === `${name}_FILE`) return;
    expect(variable).toBe(name);
    expect(parse(row.kind, value, "production")).toHaveProperty("value");
  });

  test("has a name of its own, a sentence, and its place in the documentation", () => {
    const names = rows.map(([name]) => name);
    const ofBothServices = names.filter((name, index) => names.indexOf(name) !== index);
    expect(ofBothServices).toEqual(["PLATFORM_SECURITY_API_KEY", "JANITOR_INTERVAL_SECONDS"]);
    const page = settingsTable();
    for (const [name, { description }] of rows) {
      expect(description).toMatch(/^[A-Z`].*\.$/);
      expect(page).toContain(`| \`${name}\` | ${description}`);
    }
    expect(page.match(/^\| `/gm)).toHaveLength(rows.length);
  });
});
