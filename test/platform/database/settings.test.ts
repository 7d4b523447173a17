import { describe, expect, test } from "vitest";
import {
  type DatabaseReadOptions,
  migrateTask,
  resolveDatabaseSettings,
} from "../../../src/platform/database/settings.ts";
import type { EnvironmentVariables } from "../../../src/platform/settings/environment.ts";
import { valueOrThrow } from "../../../src/platform/settings/settings.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { problemLines, problemsOf } from "../../support/setting-problems.ts";

const read = (env: EnvironmentVariables, options: DatabaseReadOptions) =>
  valueOrThrow(resolveDatabaseSettings(env, options));
const development: DatabaseReadOptions = { environment: "development", service: "auth", dataDir: "/data" };
const production: DatabaseReadOptions = { ...development, environment: "production" };
const complete = { DB_HOST: "db.internal", DB_NAME: "gatepost", DB_USER: "app", DB_PASSWORD: "hunter2" };

describe("development", () => {
  test("without DB_HOST the database is embedded, each service's in a directory of its own", () => {
    expect(read({}, development)).toEqual({ kind: "embedded", dataDir: "/data/database" });
  });

  test("with DB_HOST the rest has defaults, and the ordinary user migrates", () => {
    expect(read({ DB_HOST: "localhost", DB_PASSWORD: "p" }, development)).toEqual({
      kind: "postgres",
      hosts: [{ host: "localhost", port: 5432 }],
      readHosts: undefined,
      name: "gatepost",
      user: "gatepost",
      password: "p",
      migrationHosts: [{ host: "localhost", port: 5432 }],
      migrationUser: "gatepost",
      migrationPassword: "p",
      ssl: "disable",
      sslCa: undefined,
      pooler: "none",
      poolSize: 10,
    });
  });

  test("no password is needed, nor for migrating", () => {
    const settings = read({ DB_HOST: "localhost", DB_USER: "me" }, { ...development, task: migrateTask });
    expect(settings).toMatchObject({
      user: "me",
      password: undefined,
      migrationUser: "me",
      migrationPassword: undefined,
    });
  });

  test("what is wrong is reported even where the database is embedded", async () => {
    const lines = await problemLines(() => read({ DB_PORT: "0" }, development));
    expect(lines).toEqual(['DB_PORT must be an integer from 1 to 65535, but is "0"']);
  });
});

describe("production", () => {
  test("requires host, name, user and password, and no migration user", async () => {
    const problems = await problemsOf(() => read({}, production));
    expect(problems.map(({ name }) => name)).toEqual(["DB_HOST", "DB_NAME", "DB_USER", "DB_PASSWORD"]);
    for (const { what, example } of problems) {
      expect(what).toMatch(/^is missing; it must be /);
      expect(example).toMatch(/^DB_[A-Z_]+=./);
    }
  });

  test("encrypts connections unless the settings disable it", () => {
    expect(read(complete, production)).toEqual({
      kind: "postgres",
      hosts: [{ host: "db.internal", port: 5432 }],
      readHosts: undefined,
      name: "gatepost",
      user: "app",
      password: "hunter2",
      migrationHosts: [{ host: "db.internal", port: 5432 }],
      migrationUser: "gatepost_migration",
      migrationPassword: undefined,
      ssl: "require",
      sslCa: undefined,
      pooler: "none",
      poolSize: 10,
    });
  });

  test("requires the migration user where migrations are run", async () => {
    const reading = (env: Record<string, string>) => () =>
      read({ ...complete, ...env }, { ...production, task: migrateTask });
    const names = (await problemsOf(reading({}))).map(({ name }) => name);
    expect(names).toEqual(["DB_USER_MIGRATION", "DB_PASSWORD_MIGRATION"]);
    const settings = reading({ DB_USER_MIGRATION: "owner", DB_PASSWORD_MIGRATION: "p" })();
    expect(settings).toMatchObject({ migrationUser: "owner", migrationPassword: "p", user: "app" });
  });

  test("migrations go around a pooler", () => {
    const env = {
      DB_POOLER: "transaction",
      DB_HOST_MIGRATION: "primary.internal",
      DB_PORT_MIGRATION: "5433",
    };
    expect(read({ ...complete, ...env }, production)).toMatchObject({
      ...{ hosts: [{ host: "db.internal", port: 5432 }], pooler: "transaction" },
      migrationHosts: [{ host: "primary.internal", port: 5433 }],
    });
  });

  test("takes authorities for verify-full", () => {
    const { cert } = localhostCertificate;
    const settings = read({ ...complete, DB_SSL: "verify-full", DB_SSL_CA: cert }, production);
    expect(settings).toMatchObject({ ssl: "verify-full", sslCa: cert });
  });
});

test("a service's own names override the plain ones", () => {
  const env = { ...complete, AUTH_DB_NAME: "auth", PUSH_DB_NAME: "push" };
  expect(read(env, production)).toMatchObject({ name: "auth", user: "app" });
  expect(read(env, { ...production, service: "push" })).toMatchObject({
    name: "push",
    user: "app",
  });
});

describe("the hosts", () => {
  const hosts = (env: EnvironmentVariables) => {
    const { hosts, migrationHosts } = Object(read({ ...complete, ...env }, production));
    return { hosts, migrationHosts };
  };
  const one = (port: number) => ({ host: "one.internal", port });
  const two = (port: number) => ({ host: "two.internal", port });

  test("may be several, each there once, and migrations are run on the same", () => {
    const env = { DB_HOST: "one.internal, two.internal:6000,one.internal:5433,[::1]:7000", DB_PORT: "5433" };
    const all = [one(5433), two(6000), { host: "::1", port: 7000 }];
    expect(hosts(env)).toEqual({ hosts: all, migrationHosts: all });
  });

  test("of a pooler are not those of migrations, and each has its own port", () => {
    const env = { DB_HOST: "one.internal,two.internal", DB_PORT: "6432", DB_PORT_MIGRATION: "5432" };
    expect(hosts(env)).toEqual({
      hosts: [one(6432), two(6432)],
      migrationHosts: [one(5432), two(5432)],
    });
    expect(hosts({ ...env, DB_HOST_MIGRATION: "two.internal:5434,one.internal" }).migrationHosts).toEqual([
      two(5434),
      one(5432),
    ]);
  });
});

describe("the standbys", () => {
  const hosts = (DB_READ_HOSTS: string, env: EnvironmentVariables = {}) =>
    Object(read({ ...complete, DB_PORT: "5433", DB_READ_HOSTS, ...env }, production)).readHosts;

  test("have the port of DB_HOST unless they name one, and each is there once", () => {
    expect(hosts("one.internal, two.internal:6000,one.internal:5433,10.0.0.1,::1,[::1]:7000")).toEqual([
      { host: "one.internal", port: 5433 },
      { host: "two.internal", port: 6000 },
      { host: "10.0.0.1", port: 5433 },
      { host: "::1", port: 5433 },
      { host: "::1", port: 7000 },
    ]);
  });

  test("are none by that word, and one of that name by its port", () => {
    expect(hosts("none")).toBeUndefined();
    expect(hosts("none:5433")).toEqual([{ host: "none", port: 5433 }]);
  });

  test("may differ between services", () => {
    expect(hosts("one.internal", { AUTH_DB_READ_HOSTS: "none" })).toBeUndefined();
    expect(hosts("one.internal", { PUSH_DB_READ_HOSTS: "none" })).toHaveLength(1);
  });
});

describe("hostile values", () => {
  test.each([
    [
      "DB_HOST",
      "postgres://app:hunter2@db/gatepost",
      "[0] must be a host name or an IP address, with or without a port",
    ],
    ["DB_HOST", "app:hunter2@db", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_HOST", "app:hunter2/@db", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_HOST", "db;drop", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_HOST", "one,,two", "[1] must be a host name or an IP address, with or without a port"],
    [
      "DB_HOST",
      "one, postgres://app:hunter2@two",
      "[1] must be a host name or an IP address, with or without a port",
    ],
    ["DB_PORT", "65536", "must be an integer from 1 to 65535"],
    ["DB_READ_HOSTS", "one,,two", "[1] must be a host name or an IP address, with or without a port"],
    ["DB_READ_HOSTS", "app:hunter2@one", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_READ_HOSTS", "one:65536", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_READ_HOSTS", "[one]:5432", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_READ_HOSTS", "one:", "[0] must be a host name or an IP address, with or without a port"],
    ["DB_NAME", "x".repeat(64), "must be 1 to 63 characters, none of them a control character"],
    ["DB_USER", "a\nb", "must be 1 to 63 characters, none of them a control character"],
    ["DB_PASSWORD", "hunter2\u0000", "must be a password without control characters"],
    ["DB_PASSWORD", "hunter2\n", "must be a password without control characters"],
    ["DB_SSL", "verify-ca", "must be one of disable, require, verify-full"],
    ["DB_SSL_CA", "hunter2", "must be certificates in PEM form, but holds no whole PEM block"],
    ["DB_POOL_SIZE", "1", "must be an integer from 2 to 1000"],
  ])("%s=%j", async (name, value, what) => {
    const lines = await problemLines(() => read({ ...complete, [name]: value }, production));
    expect(lines).toHaveLength(1);
    expect(lines[0]).toContain(`${name} ${what}`);
    expect(lines[0]).not.toContain("hunter2");
  });
});
