/** Which changes of the protos `npm run breaking` finds, where some are declared. */
import { cp, glob, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { protoBreaks } from "../../scripts/proto/breaking.ts";

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "gatepost-proto-"));
  await cp("buf.yaml", join(folder, "buf.yaml"));
  await cp("proto", join(folder, "proto"), { recursive: true });
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** Makes the older protos, from those of today. */
async function rewrite(file: string, change: (text: string) => string): Promise<void> {
  const path = join(folder, file);
  const text = await readFile(path, "utf8");
  const changed = change(text);
  if (changed === text) throw new Error(`nothing changed in ${file}`);
  await writeFile(path, changed);
}

const withoutOptions = (text: string) => text.replaceAll(/^option .*\n/gm, "");

describe("protoBreaks", () => {
  it("finds nothing where nothing has changed", async () => {
    expect(await protoBreaks(folder)).toEqual({ declared: [], undeclared: [] });
  });

  it("takes what is declared: packages of generated code, and time claims that may be absent", async () => {
    for await (const file of glob("proto/{auth,push}/v1/*.proto")) await rewrite(file, withoutOptions);
    await rewrite("proto/auth/v1/introspection.proto", (text) =>
      text.replaceAll(/\boptional string (?=(nbf|exp|iat) )/g, "string "),
    );
    const { declared, undeclared } = await protoBreaks(folder);
    expect(undeclared).toEqual([]);
    const texts = new Set(declared.map(({ message }) => message));
    // Each declaration is of a change that there was.
    expect(texts.size).toBe(
      (await readFile("proto/declared-breaks.yaml", "utf8")).match(/^ {4}- /gm)?.length,
    );
  });

  it.each([
    {
      change: "another package in the same option",
      file: "proto/auth/v1/events.proto",
      edit: (text: string) => text.replace('java_package = "gatepost', 'java_package = "com.gatepost'),
      found: /java_package/,
    },
    {
      change: "another field that may be absent",
      file: "proto/auth/v1/introspection.proto",
      edit: (text: string) => text.replace(/^ {2}string sub = /m, "  optional string sub = "),
      found: /"sub".*cardinality/,
    },
    {
      change: "a field that is gone",
      file: "proto/push/v1/delivery.proto",
      edit: (text: string) =>
        text.replace(/^message WatchProgressRequest \{/m, "$&\n  // Gone.\n  string gone = 77;"),
      found: /"77".*deleted/,
    },
  ])("finds what is not declared: $change", async ({ file, edit, found }) => {
    await rewrite(file, edit);
    const { declared, undeclared } = await protoBreaks(folder);
    expect(declared).toEqual([]);
    expect(undeclared).not.toEqual([]);
    for (const each of undeclared)
      expect(each).toMatchObject({ path: file, message: expect.stringMatching(found) });
  });
});
