/** Which changes of an OpenAPI document count as breaking: the table is breaking/changes.yaml. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { type Document, parse, parseDocument } from "yaml";
import { declaresBreak, openapiBreaks } from "../../scripts/openapi/breaking.ts";
import { objectOf } from "../../scripts/openapi/document.ts";
import { startProgram } from "../support/program.ts";

/** A row of the table. */
interface Change {
  readonly change: string;
  readonly move?: string;
  readonly to?: string;
  readonly remove?: string;
  readonly set?: string;
  readonly add?: string;
  readonly value?: unknown;
  readonly breaks?: string | readonly string[];
}

const folder = join(import.meta.dirname, "breaking");
const published = readFileSync(join(folder, "published.yaml"), "utf8");
const changes: readonly Change[] = parse(readFileSync(join(folder, "changes.yaml"), "utf8"));

/** The steps of a place as the table writes them. */
function steps(place: string): string[] {
  const [first = "", ...rest] = place.split(" ");
  const things = ["paths", "/things/{id}"];
  if (first === "things") return [...things, ...rest];
  if (first === "get" || first === "put") return [...things, first, ...rest];
  return /^[A-Z]/.test(first) ? ["components", "schemas", first, ...rest] : [first, ...rest];
}

function edit(document: Document, { move, to, remove, set, add, value }: Change): void {
  if (move !== undefined && to !== undefined) {
    document.setIn(steps(to), document.getIn(steps(move), true));
    document.deleteIn(steps(move));
  }
  if (remove !== undefined && !document.deleteIn(steps(remove))) throw new Error(`There is no ${remove}.`);
  if (set !== undefined) document.setIn(steps(set), document.createNode(value));
  if (add !== undefined) document.addIn(steps(add), document.createNode(value));
}

describe("openapiBreaks", () => {
  const rows = changes.map((row) => ({ ...row, verdict: row.breaks === undefined ? "harmless" : "breaks" }));

  it.each(rows)("$change: $verdict", ({ breaks = [], ...change }) => {
    const document = parseDocument(published);
    edit(document, change);
    const found = openapiBreaks(objectOf(parse(published)), objectOf(document.toJS()));
    expect(found.map(({ what }) => what)).toEqual([breaks].flat());
  });

  it("reports a change of a shared schema once, with every place that it shows in", () => {
    const document = parseDocument(published);
    document.deleteIn(steps("Thing properties size"));
    expect(openapiBreaks(objectOf(parse(published)), objectOf(document.toJS()))).toEqual([
      {
        what: "Thing.size: removed",
        where: ["GET /things/{id} 200 application/json", "GET /things/{id} 200 application/cbor"],
      },
    ]);
  });

  it.each(readdirSync("openapi").filter((name) => name.endsWith(".yaml")))("reads %s", (name) => {
    const text = readFileSync(join("openapi", name), "utf8");
    expect(openapiBreaks(objectOf(parse(text)), objectOf(parse(text)))).toEqual([]);
  });
});

describe("declaresBreak", () => {
  it.each([
    ["0.1.0", "0.2.0", true],
    ["0.9.3", "1.0.0", true],
    ["1.4.0", "2.0.0", true],
    ["0.1.0", "0.1.1", false],
    ["0.2.0", "0.1.0", false],
    ["1.4.0", "1.5.0", false],
    ["2.0.0", "1.0.0", false],
    ["1.0.0", "1.0.0", false],
  ])("from %s to %s: %s", (before, after, declared) => {
    expect(declaresBreak(before, after)).toBe(declared);
  });
});

describe("npm run breaking -- <commit>", () => {
  const run = async (...args: string[]) => {
    const breaking = startProgram([process.execPath, "scripts/breaking.ts", ...args], {});
    return { code: await breaking.ended(), output: breaking.output() };
  };

  it("compares with that commit", async () => {
    const { output } = await run("HEAD");
    expect(output).toMatch(/^Comparing the contracts with HEAD \([0-9a-f]{10}\)\.$/m);
    expect(output).toContain("openapi/auth.yaml: ");
  });

  it.each(["nonsense", "HEAD:package.json", ""])("says in a line that %j is none", async (name) => {
    const { code, output } = await run(name);
    expect(code).toBe(1);
    expect(output.trimEnd().split("\n")).toHaveLength(1);
    expect(output).toMatch(/^.* names no commit of this repository\. .*`git /);
  });
});
