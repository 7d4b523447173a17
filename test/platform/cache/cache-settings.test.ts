import { expect, test } from "vitest";
import { resolveCacheSettings } from "../../../src/platform/cache/cache-settings.ts";
import type { Environment } from "../../../src/platform/settings/kinds.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";

function read(env: Record<string, string>, environment: Environment = "development") {
  const { value, problems } = resolveCacheSettings(env, { environment, prefix: "AUTH_" });
  return { value, problems: problems.map(({ name, what }) => `${name} ${what}`) };
}

test("without a cache nothing is needed", () => {
  expect(read({}, "production")).toEqual({ value: undefined, problems: [] });
});

test("a host is enough", () => {
  expect(read({ CACHE_HOST: "redis", AUTH_CACHE_PORT: "6380" })).toEqual({
    value: {
      host: "redis",
      port: 6380,
      username: undefined,
      password: undefined,
      isSecure: false,
      ca: undefined,
    },
    problems: [],
  });
});

test("a user needs a password, and a password no user", () => {
  const env = { CACHE_HOST: "redis", CACHE_USERNAME: "gatepost" };
  expect(read(env).problems).toEqual(["CACHE_PASSWORD is missing, but CACHE_USERNAME is set"]);
  expect(read({ ...env, CACHE_PASSWORD: "s3cret" })).toMatchObject({
    value: { username: "gatepost", password: "s3cret" },
    problems: [],
  });
  expect(read({ CACHE_HOST: "redis", CACHE_PASSWORD: "s3cret" }).problems).toEqual([]);
});

test("production refuses cleartext to a public host only", () => {
  const problems = ["CACHE_TLS must be YES in production, as the host of the cache is public"];
  expect(read({ CACHE_HOST: "redis.example.com" }, "production").problems).toEqual(problems);
  expect(read({ CACHE_HOST: "2001:db8::1" }, "production").problems).toEqual(problems);
  for (const CACHE_HOST of ["redis", "redis.internal", "10.0.0.1", "fd00::1", "127.0.0.1"])
    expect(read({ CACHE_HOST }, "production").problems).toEqual([]);
  expect(read({ CACHE_HOST: "redis.example.com", CACHE_TLS: "yes" }, "production").problems).toEqual([]);
});

test("a password is quoted nowhere", () => {
  const { problems } = read({ CACHE_HOST: "redis", CACHE_PASSWORD: "s3cret\u0007" });
  expect(problems).toEqual([expect.stringMatching(/^CACHE_PASSWORD must be /)]);
  expect(problems.join()).not.toContain("s3cret");
});

test.each([
  ["CACHE_HOST", "redis://:s3cret@redis:6379"],
  ["CACHE_HOST", "gatepost:s3cret@redis"],
  ["CACHE_HOST", "redis:6379"],
  ["CACHE_PORT", "0"],
  ["CACHE_PORT", "6379a"],
  ["CACHE_TLS", "maybe"],
  ["CACHE_USERNAME", "gate\u0007post"],
  ["CACHE_CA", "s3cret"],
])("%s=%j is refused, and no secret in it is quoted", (name, value) => {
  const { problems } = read({ CACHE_HOST: "redis", CACHE_PASSWORD: "p4ssword", [name]: value });
  expect(problems).toEqual([expect.stringMatching(new RegExp(`^${name} must be `))]);
  expect(problems.join()).not.toMatch(/s3cret|p4ssword/);
});

test("authorities are those of CACHE_CA", () => {
  const { cert } = localhostCertificate;
  const env = { CACHE_HOST: "redis.example.com", CACHE_TLS: "YES", CACHE_CA: cert };
  expect(read(env, "production")).toMatchObject({ value: { isSecure: true, ca: cert }, problems: [] });
});
