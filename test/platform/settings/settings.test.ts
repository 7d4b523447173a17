import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import type { EnvironmentVariables } from "../../../src/platform/settings/environment.ts";
import { integer, matching, plainText, yesNo } from "../../../src/platform/settings/kinds.ts";
import {
  joinReadings,
  type ReadOptions,
  resolveSettings,
  SettingsError,
  type SettingsTable,
  valueOrThrow,
} from "../../../src/platform/settings/settings.ts";
import { problemLines, problemsOf } from "../../support/setting-problems.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const table = {
  SIZE: {
    description: "A size.",
    kind: integer(1, 10),
    default: "3",
    example: "5",
  },
  COLOR: {
    description: "A colour.",
    kind: plainText,
    development: "<favourite> blue",
    required: true,
    example: "red",
  },
  LOUD: { description: "Loudness.", kind: yesNo, example: "YES" },
  CODE: {
    description: "A secret.",
    kind: matching("four digits", /^\d{4}$/),
    secret: true,
    required: "open",
    exampleFile: "code",
  },
} as const satisfies SettingsTable;

const development: ReadOptions = {
  environment: "development",
  prefix: "AUTH_",
  placeholders: { favourite: () => "dark" },
};
const read = (env: EnvironmentVariables, options: ReadOptions) =>
  valueOrThrow(resolveSettings(table, env, options));
const production: ReadOptions = { ...development, environment: "production" };

let dir: string;
const file = (name: string, content: string | Uint8Array) => {
  const path = join(dir, name);
  writeFileSync(path, content);
  return path;
};
const cleanup = suiteCleanup();
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), "settings-"));
  cleanup.defer(() => rmSync(dir, { recursive: true }));
});

describe("defaults", () => {
  test("development has those of the table, with placeholders filled in", () => {
    expect(read({}, development)).toEqual({
      SIZE: 3,
      COLOR: "dark blue",
      LOUD: undefined,
      CODE: undefined,
    });
  });

  test("a placeholder that stands for nothing takes the default away", () => {
    const { value, problems } = resolveSettings(
      table,
      {},
      { ...development, placeholders: { favourite: () => undefined } },
    );
    expect({ value, problems }).toEqual({ value: undefined, problems: [] });
  });

  test("an unknown placeholder is a defect of the table", () => {
    expect(() => read({}, { environment: "development" })).toThrow(/<favourite>/);
  });

  test("the types of the values are those of the kinds", () => {
    const values = read({}, development);
    const size: number = values.SIZE;
    const color: string = values.COLOR;
    const loud: boolean | undefined = values.LOUD;
    // @ts-expect-error a setting that may be absent is no boolean
    const bold: boolean = values.LOUD;
    expect([size, color, loud, bold]).toEqual([3, "dark blue", undefined, undefined]);
  });
});

describe("where the text comes from", () => {
  test.each([
    ["the plain name", () => ({ SIZE: "4" }), 4],
    ["a file, without its trailing newline", () => ({ SIZE_FILE: file("a", "5\n") }), 5],
    ["a file with a Windows newline", () => ({ SIZE_FILE: file("b", "5\r\n") }), 5],
    ["the prefixed name before the plain one", () => ({ SIZE: "4", AUTH_SIZE: "6" }), 6],
    ["the prefixed file before the plain name", () => ({ SIZE: "4", AUTH_SIZE_FILE: file("c", "7") }), 7],
    [
      "the plain name when the prefixed one is empty",
      () => ({ SIZE: "4", AUTH_SIZE: "", AUTH_SIZE_FILE: "" }),
      4,
    ],
    ["the default when all are empty", () => ({ SIZE: "", SIZE_FILE: "" }), 3],
    ["the default when the file is empty", () => ({ SIZE_FILE: file("d", "\n") }), 3],
    ["not another service's name", () => ({ PUSH_SIZE: "9" }), 3],
  ])("%s", (_, env, expected) => {
    expect(read(env(), development).SIZE).toBe(expected);
  });

  test("only one trailing newline is trimmed", () => {
    const env = { SIZE_FILE: file("two", "5\n\n") };
    expect(() => read(env, development)).toThrow(SettingsError);
  });

  test("a name and its file together are a problem, prefixed or not", async () => {
    const path = file("both", "4");
    const lines = (env: Record<string, string>) => problemLines(() => read(env, development));
    expect(await lines({ SIZE: "4", SIZE_FILE: path })).toEqual([
      "SIZE is set, and so is SIZE_FILE; set one of them",
    ]);
    expect(await lines({ AUTH_SIZE: "4", AUTH_SIZE_FILE: path })).toEqual([
      "AUTH_SIZE is set, and so is AUTH_SIZE_FILE; set one of them",
    ]);
  });

  test.each([
    ["is not there", () => join(dir, "nowhere"), "cannot be read as text (ENOENT)"],
    ["is a directory", () => dir, "is not a file"],
    ["is a device", () => "/dev/zero", "is not a file"],
    ["is too large", () => file("large", "1".repeat(2 ** 20 + 1)), "is larger than 1 MiB"],
    [
      "is not UTF-8",
      () => file("latin", Uint8Array.of(0x34, 0xe4)),
      "cannot be read as text (ERR_ENCODING_INVALID_ENCODED_DATA)",
    ],
    ["is under a file", () => join(file("f", "x"), "g"), "cannot be read as text (ENOTDIR)"],
  ])("a file that %s is a problem that names the path", async (_, path, what) => {
    const lines = await problemLines(() => read({ SIZE_FILE: path() }, development));
    expect(lines).toEqual([`SIZE_FILE names ${JSON.stringify(path())}, which ${what}`]);
  });
});

describe("problems", () => {
  test("all are reported together, each with its name, what is wrong and an example", async () => {
    mkdirSync(join(dir, "folder"));
    const env = { SIZE: "eleven", LOUD_FILE: join(dir, "folder"), AUTH_CODE: "hunter2" };
    expect(await problemsOf(() => read(env, production))).toEqual([
      { name: "SIZE", what: 'must be an integer from 1 to 10, but is "eleven"', example: "SIZE=5" },
      { name: "COLOR", what: "is missing; it must be text without control characters", example: "COLOR=red" },
      { name: "LOUD_FILE", what: expect.stringContaining("is not a file"), example: "LOUD=YES" },
      { name: "AUTH_CODE", what: "must be four digits", example: "AUTH_CODE_FILE=/run/secrets/code" },
    ]);
  });

  test("the message has a paragraph for each", () => {
    expect(new SettingsError([{ name: "SIZE", what: "is missing", example: "SIZE=5" }]).message).toBe(
      "1 setting is not right:\n  SIZE is missing.\n      Example: SIZE=5",
    );
  });

  test("a task makes further settings required, in production only", async () => {
    const env = { COLOR: "red" };
    const lines = (options: ReadOptions) => problemLines(() => read(env, options));
    expect(await lines(production)).toEqual([]);
    expect(await lines({ ...development, task: "open" })).toEqual([]);
    expect(await lines({ ...production, task: "open" })).toEqual(["CODE is missing; it must be four digits"]);
  });

  test("a secret is quoted neither from a variable nor from a file", () => {
    for (const env of [{ CODE: "hunter2" }, { CODE_FILE: file("secret", "hunter2") }]) {
      expect(() => read(env, development)).toThrow(SettingsError);
      expect(() => read(env, development)).not.toThrow(/hunter2/);
    }
  });

  test("the address of a Service, which Kubernetes puts into variables, is told from a typing error", async () => {
    const ports = { DB_PORT: { description: "A port.", kind: integer(1, 65_535), default: "5432" } } as const;
    const lines = (env: Record<string, string>) =>
      problemLines(() => valueOrThrow(resolveSettings(ports, env, production)));
    const why =
      "Kubernetes sets it so for a Service of that name, unless the Pod has enableServiceLinks: false";
    const must = "must be an integer from 1 to 65535, but is";
    for (const name of ["DB_PORT", "AUTH_DB_PORT"])
      expect(await lines({ [name]: "tcp://10.0.0.1:5432" })).toEqual([
        `${name} ${must} "tcp://10.0.0.1:5432"; ${why}`,
      ]);
    expect(await lines({ DB_PORT: "5432a" })).toEqual([`DB_PORT ${must} "5432a"`]);
  });

  test.each([
    ["newlines", "1\n  DB_HOST is fine", String.raw`"1\n  DB_HOST is fine"`],
    ["escape sequences", "\u001b[31m", String.raw`"\u001b[31m"`],
    ["length", "9".repeat(5000), `"${"9".repeat(200)}…"`],
    ["credentials of a URL", "https://me:hunter2@example.com", '"https://***@example.com"'],
  ])("a quoted value cannot disturb the message: %s", async (_, size, shown) => {
    const lines = await problemLines(() => read({ SIZE: size }, development));
    expect(lines).toEqual([`SIZE must be an integer from 1 to 10, but is ${shown}`]);
  });
});

describe("several reads", () => {
  const other = {
    DEPTH: { description: "A depth.", kind: integer(0, 9), default: "1", example: "2" },
  } as const satisfies SettingsTable;

  test("joined, they are one object", () => {
    const readings = {
      one: resolveSettings(table, { SIZE: "4" }, development),
      two: resolveSettings(other, {}, development),
    };
    const { one, two } = joinReadings(readings);
    expect([one.SIZE, two.DEPTH]).toEqual([4, 1]);
  });

  test("joined, their problems come out together", async () => {
    const env = { SIZE: "0", DEPTH: "-1" };
    const join = () =>
      joinReadings({
        one: resolveSettings(table, env, production),
        two: resolveSettings(other, env, production),
      });
    expect((await problemsOf(join)).map(({ name }) => name)).toEqual(["SIZE", "COLOR", "DEPTH"]);
  });

  test("a default stands in for what is wrong, so that more can be read", () => {
    const { value, valid } = resolveSettings(table, { SIZE: "0" }, development);
    expect(value?.SIZE).toBe(3);
    expect(valid).not.toHaveProperty("SIZE");
  });
});
