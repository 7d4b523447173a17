import { describe, expect, test } from "vitest";
import type { EnvironmentVariables } from "../../../src/platform/settings/environment.ts";
import { settingWarnings } from "../../../src/platform/settings/warnings.ts";

const known = [
  { name: "HOST" },
  { name: "DB_HOST" },
  { name: "SERVICES" },
  { name: "DATA_DIR", unused: "NODE_ENV is production" },
  { name: "PUSH_SIZE", unused: "SERVICES does not name push" },
  { name: "SHARED", unused: "one has no use for it" },
  { name: "SHARED" },
];
const warnings = (env: EnvironmentVariables) => settingWarnings(env, known, ["DB_", "PUSH_"]);

describe("a setting", () => {
  test("that is used is not named", () => {
    expect(warnings({ HOST: "::", DB_HOST_FILE: "/run/host", SHARED: "1" })).toEqual([]);
  });

  test("that is not used is named, with the reason and without its value", () => {
    expect(warnings({ DATA_DIR: "hunter2", PUSH_SIZE_FILE: "hunter2" })).toEqual([
      "DATA_DIR is set, but is not used: NODE_ENV is production",
      "PUSH_SIZE_FILE is set, but is not used: SERVICES does not name push",
    ]);
  });

  test("that is empty is not set", () => {
    expect(warnings({ DATA_DIR: "", DB_HOSTS: "", PUSH_X: undefined })).toEqual([]);
  });
});

describe("an unknown name", () => {
  test.each([
    ["an insertion", "DB_HOSTS"],
    ["an insertion at its beginning", "XDB_HOST"],
    ["a deletion", "DB_HOT"],
    ["a substitution", "DB-HOST".replace("-", "A")],
    ["a transposition", "DB_HSOT"],
    ["a transposition at its end", "DB_HOTS"],
    ["an edit of its file's name", "DB_HOST_FIEL"],
  ])("one edit away from a setting is named: %s", (_, name) => {
    expect(warnings({ [name]: "hunter2" })).toEqual([
      `${name} is set, but is no setting; did you mean DB_HOST?`,
    ]);
  });

  test("that begins as ours do is named", () => {
    expect(warnings({ DB_COLOUR: "hunter2" })).toEqual([
      "DB_COLOUR is set, but is no setting of this version",
    ]);
  });

  test.each(["HOSTS", "HOSTNAME", "DBHOTS", "SERVIZE", "SERVICESES", "XPUSH_", "db_host", "DB"])(
    "that is further away is not: %s",
    (name) => {
      expect(warnings({ [name]: "x" })).toEqual([]);
    },
  );

  test("of Kubernetes' making is not", () => {
    const links = {
      PUSH_SERVICE_HOST: "10.0.0.1",
      PUSH_SERVICE_PORT: "80",
      PUSH_SERVICE_PORT_HTTP: "80",
      PUSH_PORT: "tcp://10.0.0.1:80",
      PUSH_PORT_80_TCP: "tcp://10.0.0.1:80",
      PUSH_PORT_80_TCP_PROTO: "tcp",
      PUSH_PORT_80_TCP_PORT: "80",
      PUSH_PORT_80_TCP_ADDR: "10.0.0.1",
    };
    expect(warnings(links)).toEqual([]);
    expect(warnings({ PUSH_PORT: "80" })).toHaveLength(1);
  });
});
