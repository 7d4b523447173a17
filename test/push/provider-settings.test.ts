import { createECDH, generateKeyPairSync, KeyObject } from "node:crypto";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { systemClock } from "../../src/platform/base/clock.ts";
import type { EnvironmentVariables } from "../../src/platform/settings/environment.ts";
import type { Environment } from "../../src/platform/settings/kinds.ts";
import { type ProviderSettings, resolveProviderSettings } from "../../src/push/provider-settings.ts";
import { createProviders } from "../../src/push/providers/create-providers.ts";
import { parseSubscription } from "../../src/push/providers/webpush/webpush-subscription.ts";

const pem = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }).toString();
const rsa = pem(generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey);
const weakRsa = pem(generateKeyPairSync("rsa", { modulusLength: 1024 }).privateKey);
const p256 = pem(generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey);
const p384 = pem(generateKeyPairSync("ec", { namedCurve: "P-384" }).privateKey);

function vapidPair(): readonly [string, string] {
  const ecdh = createECDH("prime256v1");
  const point = ecdh.generateKeys("base64url");
  const d = Buffer.concat([Buffer.alloc(32), ecdh.getPrivateKey()]).subarray(-32);
  return [d.toString("base64url"), point];
}
const [vapidPrivate, vapidPublic] = vapidPair();

const account = {
  type: "service_account",
  project_id: "my-project",
  private_key_id: "k1",
  private_key: rsa,
  client_email: "push@my-project.iam.gserviceaccount.com",
  client_id: "1",
  token_uri: "https://oauth2.googleapis.com/token",
};

const whole: EnvironmentVariables = {
  PUSH_PROVIDERS: "fcm, apns,webpush",
  PUSH_IMAGE_BASE_URL: "https://images.example.com/push/",
  FCM_CREDENTIALS: JSON.stringify(account),
  APNS_KEY: p256,
  APNS_KEY_ID: "ABC123DEFG",
  APNS_TEAM_ID: "DEF123GHIJ",
  APNS_TOPIC: "com.example.app",
  WEBPUSH_VAPID_PRIVATE_KEY: vapidPrivate,
  WEBPUSH_VAPID_PUBLIC_KEY: vapidPublic,
  WEBPUSH_SUBJECT: "mailto:push@shop.example.io",
};

function read(env: EnvironmentVariables, environment: Environment = "production") {
  return resolveProviderSettings(env, { environment, dataDir: "/data", prefix: "PUSH_" });
}
const linesOf = (env: EnvironmentVariables, environment?: Environment): readonly string[] =>
  read(env, environment).problems.map(({ name, what }) => `${name} ${what}`);
const settingsOf = (env: EnvironmentVariables, environment?: Environment): ProviderSettings => {
  const { value, problems } = read(env, environment);
  expect(problems).toEqual([]);
  if (value === undefined) throw new Error("There are no settings.");
  return value;
};

describe("settings that are right", () => {
  test("of production", async () => {
    const settings = settingsOf(whole);
    expect(settings).toEqual({
      names: ["fcm", "apns", "webpush"],
      fcm: {
        endpoint: "https://fcm.googleapis.com",
        account: {
          projectId: "my-project",
          privateKeyId: "k1",
          privateKey: rsa,
          clientEmail: account.client_email,
          tokenUri: account.token_uri,
        },
      },
      apns: {
        endpoint: "https://api.push.apple.com",
        key: p256,
        keyId: "ABC123DEFG",
        teamId: "DEF123GHIJ",
        topic: "com.example.app",
      },
      webpush: {
        vapidKeys: [{ privateKey: expect.any(KeyObject), publicKey: vapidPublic }],
        subject: "mailto:push@shop.example.io",
        allowedHosts: [
          "fcm.googleapis.com",
          "jmt17.google.com",
          "updates.push.services.mozilla.com",
          "*.push.apple.com",
          "*.notify.windows.com",
        ],
      },
      outboxFile: undefined,
      imageBaseUrl: "https://images.example.com/push",
    });
    const providers = createProviders(settings, systemClock);
    expect([...providers.keys()]).toEqual(["fcm", "apns", "webpush"]);
    for (const provider of providers.values()) await provider.close();
  });

  test("of development are none", () => {
    expect(settingsOf({}, "development")).toEqual({
      names: ["outbox"],
      fcm: undefined,
      apns: undefined,
      webpush: undefined,
      outboxFile: join("/data", "outbox.ndjson"),
      imageBaseUrl: undefined,
    });
  });

  test("only of what is listed are asked for", () => {
    const { FCM_CREDENTIALS } = whole;
    expect(settingsOf({ PUSH_PROVIDERS: "fcm", FCM_CREDENTIALS })).toMatchObject({ apns: undefined });
  });

  test("come from files and under the service's prefix, too", () => {
    const file = join(mkdtempSync(join(tmpdir(), "gatepost-settings-")), "account.json");
    writeFileSync(file, JSON.stringify(account));
    const env = { PUSH_PROVIDERS: "fcm", PUSH_FCM_CREDENTIALS_FILE: file };
    expect(settingsOf(env).fcm?.account.projectId).toBe("my-project");
  });

  test.each<[string, (json: string) => string]>([
    ["CRLF", (json) => json.replaceAll("\\n", "\\r\\n")],
    ["line breaks that are escaped twice", (json) => json.replaceAll("\\n", "\\\\n")],
    ["CRLF that is escaped twice", (json) => json.replaceAll("\\n", "\\\\r\\\\n")],
    ["real line breaks", (json) => json.replaceAll("\\n", "\n")],
    ["real CRLF", (json) => json.replaceAll("\\n", "\r\n")],
    ["spaces", (json) => json.replaceAll("\\n", " ")],
  ])("of FCM may have a key with %s", (_, write) => {
    const FCM_CREDENTIALS = write(JSON.stringify(account, null, 2));
    expect(settingsOf({ PUSH_PROVIDERS: "fcm", FCM_CREDENTIALS }).fcm?.account).toHaveProperty(
      "privateKey",
      rsa,
    );
  });

  test("of FCM may be a project, whose credentials are the machine's", () => {
    expect(settingsOf({ PUSH_PROVIDERS: "fcm", FCM_PROJECT_ID: "my-project" }).fcm).toEqual({
      endpoint: "https://fcm.googleapis.com",
      account: { projectId: "my-project" },
    });
  });

  test("of Web Push take the endpoints that browsers have", async () => {
    const { webpush } = settingsOf(whole);
    const keys = { p256dh: vapidPublic, auth: "AAAAAAAAAAAAAAAAAAAAAA" };
    for (const host of [
      "fcm.googleapis.com",
      "jmt17.google.com",
      "web.push.apple.com",
      "api.sandbox.push.apple.com",
    ]) {
      const token = JSON.stringify({ endpoint: `https://${host}/x`, keys });
      expect(parseSubscription(token, webpush?.allowedHosts ?? [])).toHaveProperty("value");
    }
  });

  test("of development may name fakes on this machine", () => {
    const env = {
      ...whole,
      FCM_ENDPOINT: "http://127.0.0.1:9301",
      FCM_CREDENTIALS: JSON.stringify({ ...account, token_uri: "http://127.0.0.1:9301/token" }),
      APNS_ENDPOINT: "http://127.0.0.1:9302",
      WEBPUSH_ALLOWED_HOSTS: "http://127.0.0.1:9303",
    };
    expect(settingsOf(env, "development").webpush?.allowedHosts).toEqual(["http://127.0.0.1:9303"]);
    expect(linesOf(env)).toEqual([
      'FCM_ENDPOINT must begin with https in production, but is "http://127.0.0.1:9301"',
      "FCM_CREDENTIALS token_uri must begin with https in production",
      'APNS_ENDPOINT must begin with https in production, but is "http://127.0.0.1:9302"',
      'WEBPUSH_ALLOWED_HOSTS [0] must be a host such as push.example.com, or *.example.com for all below it, but is "http://127.0.0.1:9303"',
    ]);
  });
});

describe("settings that are wrong", () => {
  test("are reported together: all that the listed providers ask for", () => {
    const lines = linesOf({ PUSH_PROVIDERS: "webpush,apns,fcm" });
    expect(lines.map((line) => line.replace(/; it must be .*/, ""))).toEqual([
      "WEBPUSH_VAPID_PRIVATE_KEY is missing, but PUSH_PROVIDERS lists webpush",
      "WEBPUSH_VAPID_PUBLIC_KEY is missing, but PUSH_PROVIDERS lists webpush",
      "WEBPUSH_SUBJECT is missing, but PUSH_PROVIDERS lists webpush",
      "APNS_KEY is missing, but PUSH_PROVIDERS lists apns",
      "APNS_KEY_ID is missing, but PUSH_PROVIDERS lists apns",
      "APNS_TEAM_ID is missing, but PUSH_PROVIDERS lists apns",
      "APNS_TOPIC is missing, but PUSH_PROVIDERS lists apns",
      "FCM_CREDENTIALS is missing, but PUSH_PROVIDERS lists fcm",
    ]);
  });

  const credentials = (changes: object) => ({ FCM_CREDENTIALS: JSON.stringify({ ...account, ...changes }) });
  const badKey = "private_key must be an unencrypted RSA key of at least 2048 bits";
  test.each<[string, EnvironmentVariables, RegExp]>([
    [
      "no list",
      { PUSH_PROVIDERS: undefined },
      /^PUSH_PROVIDERS is missing; it must be a comma-separated list/,
    ],
    ["an unknown provider", { PUSH_PROVIDERS: "fcm,sms" }, /^PUSH_PROVIDERS \[1\] must be one of/],
    ["the outbox", { PUSH_PROVIDERS: "fcm,outbox" }, /^PUSH_PROVIDERS must not list outbox in production/],
    ["an endpoint with a path", { FCM_ENDPOINT: "https://a.example/x" }, /^FCM_ENDPOINT must be an origin/],
    ["no JSON", { FCM_CREDENTIALS: "x" }, /^FCM_CREDENTIALS must be the JSON .* but is not JSON/],
    ["another account", credentials({ type: "authorized_user" }), /^FCM_CREDENTIALS type must be/],
    ["no project", credentials({ project_id: undefined }), /^FCM_CREDENTIALS project_id is missing$/],
    ["a project that is a path", credentials({ project_id: "../x" }), /^FCM_CREDENTIALS project_id must be/],
    ["a weak key", credentials({ private_key: weakRsa }), new RegExp(`^FCM_CREDENTIALS ${badKey}$`)],
    ["a key of another kind", credentials({ private_key: p256 }), new RegExp(`^FCM_CREDENTIALS ${badKey}$`)],
    [
      "no key",
      credentials({ private_key: "-----BEGIN x" }),
      new RegExp(`^FCM_CREDENTIALS ${badKey}, but holds no whole PEM`),
    ],
    [
      "a project beside credentials",
      { FCM_PROJECT_ID: "x" },
      /^FCM_PROJECT_ID must not be set beside FCM_CRED/,
    ],
    ["a file for a URL", credentials({ token_uri: "file:///x" }), /^FCM_CREDENTIALS token_uri must be/],
    ["an RSA key for APNs", { APNS_KEY: rsa }, /^APNS_KEY must be an EC P-256 key, but is of type rsa$/],
    ["another curve", { APNS_KEY: p384 }, /^APNS_KEY must be an EC P-256 key/],
    ["a short id", { APNS_KEY_ID: "ABC" }, /^APNS_KEY_ID must be 10 capital letters and digits/],
    ["a topic with a line break", { APNS_TOPIC: "a\r\nb" }, /^APNS_TOPIC must be letters/],
    [
      "a short private key",
      { WEBPUSH_VAPID_PRIVATE_KEY: "AAAA" },
      /^WEBPUSH_VAPID_PRIVATE_KEY must be .*url$/,
    ],
    [
      "a private key of zero",
      { WEBPUSH_VAPID_PRIVATE_KEY: "A".repeat(43) },
      /^WEBPUSH_VAPID_PRIVATE_KEY must/,
    ],
    ["no point", { WEBPUSH_VAPID_PUBLIC_KEY: "B".repeat(87) }, /^WEBPUSH_VAPID_PUBLIC_KEY must be a P-256/],
    [
      "another's key",
      { WEBPUSH_VAPID_PUBLIC_KEY: vapidPair()[1] },
      /^WEBPUSH_VAPID_PUBLIC_KEY does not belong/,
    ],
    ["no subject", { WEBPUSH_SUBJECT: "me" }, /^WEBPUSH_SUBJECT must be a mailto: or https: URL/],
    ...["@localhost", "@mail", "@example.com", "@push.example", "@a.test", "@a.invalid", "@10.0.0.1"].map(
      (host): [string, EnvironmentVariables, RegExp] => [
        `a subject ${host}`,
        { WEBPUSH_SUBJECT: `mailto:push${host}` },
        /^WEBPUSH_SUBJECT must name a public host/,
      ],
    ),
    [
      "a subject on this machine",
      { WEBPUSH_SUBJECT: "https://LOCALHOST:8080/" },
      /^WEBPUSH_SUBJECT must name/,
    ],
    ["a subject nearby", { WEBPUSH_SUBJECT: "https://push.local./" }, /^WEBPUSH_SUBJECT must name/],
    ["an address as host", { WEBPUSH_ALLOWED_HOSTS: "10.0.0.1" }, /^WEBPUSH_ALLOWED_HOSTS \[0\] must be/],
    ["a host that is all", { WEBPUSH_ALLOWED_HOSTS: "*" }, /^WEBPUSH_ALLOWED_HOSTS \[0\] must be/],
    ["a top-level domain", { WEBPUSH_ALLOWED_HOSTS: "*.com" }, /^WEBPUSH_ALLOWED_HOSTS \[0\] must be/],
    [
      "images over http",
      { PUSH_IMAGE_BASE_URL: "http://a.example" },
      /^PUSH_IMAGE_BASE_URL must begin with https/,
    ],
    [
      "images too far down",
      { PUSH_IMAGE_BASE_URL: `https://a.example/${"a".repeat(483)}` },
      /^PUSH_IMAGE_BASE_URL must not be longer than 500 characters/,
    ],
  ])("%s", (_, changes, expected) => {
    const lines = linesOf({ ...whole, ...changes });
    expect(lines).toHaveLength(1);
    expect(lines[0]).toMatch(expected);
  });

  test("never show a secret", () => {
    const secrets = {
      FCM_CREDENTIALS: JSON.stringify({ ...account, private_key: "-----BEGIN SECRET-1" }),
      APNS_KEY: "-----BEGIN PRIVATE KEY-----\nSECRET-2\n-----END PRIVATE KEY-----",
      WEBPUSH_VAPID_PRIVATE_KEY: "SECRET-3",
    };
    const lines = linesOf({ ...whole, ...secrets });
    expect(lines).toHaveLength(3);
    expect(lines.join()).not.toContain("SECRET-");
  });
});
