import { expect, test } from "vitest";
import { resolveBrokerSettings } from "../../../src/platform/messaging/broker-settings.ts";
import type { Environment } from "../../../src/platform/settings/kinds.ts";

function read(env: Record<string, string>, environment: Environment = "development") {
  const { value, problems } = resolveBrokerSettings(env, { environment, prefix: "AUTH_" });
  return { value, problems: problems.map(({ name, what }) => `${name} ${what}`) };
}

const credentialsFile = `-----BEGIN NATS USER JWT-----
eyJ0eXAi
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
SUAI
------END USER NKEY SEED------
`;

test("without a broker nothing is needed", () => {
  expect(read({}, "production")).toEqual({ value: undefined, problems: [] });
});

test("a broker has one server or more, one replica, and keeps events for a week", () => {
  expect(read({ BROKER_URL: "nats://nats-0:4222, tls://nats-1.internal" })).toEqual({
    value: {
      servers: ["nats://nats-0:4222", "tls://nats-1.internal"],
      credentials: undefined,
      ca: undefined,
      replicas: 1,
      retentionDays: 7,
    },
    problems: [],
  });
  expect(read({ BROKER_URL: "nats://a", AUTH_BROKER_URL: "nats://b" }).value?.servers).toEqual(["nats://b"]);
});

test.each([
  ["nats://a", undefined, 1],
  ["nats://a,nats://b", undefined, 1],
  ["nats://a,nats://b,nats://c", undefined, 3],
  ["nats://a,nats://b,nats://c,nats://d", undefined, 3],
  ["nats://a,nats://b,nats://c", "1", 1],
  ["nats://a", "5", 5],
])("of the servers %s, with BROKER_REPLICAS=%s, %i keep each event", (BROKER_URL, set, replicas) => {
  const { value, problems } = read({ BROKER_URL, ...(set && { BROKER_REPLICAS: set }) });
  expect(problems).toEqual([]);
  expect(value?.replicas).toBe(replicas);
});

test.each([
  ["relay:pass:word", { user: "relay", password: "pass:word" }],
  [credentialsFile, { file: credentialsFile }],
])("credentials are a user's or a file's", (text, credentials) => {
  expect(read({ BROKER_URL: "nats://nats", BROKER_CREDENTIALS: text }).value?.credentials).toEqual(
    credentials,
  );
});

test.each([
  "nats.internal:4222",
  "http://nats",
  "nats://relay:s3cret@nats",
  "nats://nats/path",
  "nats://a,",
  "tls://nats?x=1",
])("BROKER_URL=%s is refused", (BROKER_URL) => {
  const { value, problems } = read({ BROKER_URL });
  expect(value).toBeUndefined();
  expect(problems).toEqual([expect.stringMatching(/^BROKER_URL \[\d\] must be /)]);
  expect(problems.join()).not.toContain("s3cret");
});

test("production refuses cleartext to a public host only", () => {
  const what = "must begin with tls in production, as its host is public";
  expect(read({ BROKER_URL: "nats://nats.example.com" }, "production").problems.join()).toContain(what);
  for (const url of [
    "tls://nats.example.com",
    "nats://nats.internal",
    "nats://10.0.0.1:4222",
    "nats://nats",
  ]) {
    expect(read({ BROKER_URL: url }, "production").problems).toEqual([]);
  }
});

test("credentials are quoted nowhere", () => {
  const { problems } = read({ BROKER_URL: "nats://nats", BROKER_CREDENTIALS: "only-a-s3cret" });
  expect(problems).toEqual([expect.stringMatching(/^BROKER_CREDENTIALS must be /)]);
  expect(problems.join()).not.toContain("s3cret");
});
