/**
 * Holds the arrows between the rooms of src/: what may import what. The reasons are in CONTRIBUTING.md.
 * Imports that are only types count as well.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";

interface SourceFile {
  readonly file: string;
  readonly lines: number;
  /** From the root, such as `src/platform/crypto/uuid.ts`; a package by its name. */
  readonly imports: readonly string[];
  readonly readsEnvironment: boolean;
}

/** Longer than that and a file holds more than one thing. */
const MAX_LINES = 400;
const PROGRAMS = ["src/main.ts", "src/migrate.ts"];
const SPEAKS_A_CONTRACT = /^src\/(?!platform\/)((development\/)?[^/]+\/(http|rpc|events)|.+-client)\.ts$/;

/** A room of src/; no import leads from one of a lower rank to one of a higher. */
interface Room {
  readonly name: string;
  readonly rank: number;
  readonly files: RegExp;
}

/** The first one that fits a file is its room. */
const ROOMS: readonly Room[] = [
  { name: "platform", rank: 0, files: /^src\/platform\// },
  { name: "program", rank: 5, files: /^src\/(development\/)?[^/]+\.ts$/ },
  { name: "service", rank: 4, files: /^src\/(development\/)?[^/]+\/service\.ts$/ },
  { name: "transport", rank: 3, files: /^src\/(development\/)?[^/]+\/(http|rpc)\.ts$/ },
  { name: "ground", rank: 1, files: /^src\/[^/]+\/(settings[^/]*|[^/]+-settings|errors|schema|events)\.ts$/ },
  { name: "feature", rank: 2, files: /^src\/[^/]+\// },
];

/** Undefined of what is not in src/. */
function roomOf(file: string): Room | undefined {
  return ROOMS.find(({ files }) => files.test(file));
}

/** The folder of the service that a file belongs to. */
function serviceOf(file: string): string | undefined {
  if (roomOf(file)?.name === "program") return undefined;
  const folder = /^src\/(development\/)?[^/]+\//.exec(file)?.[0];
  return folder === "src/platform/" ? undefined : folder;
}

/** The module that a statement or expression names, with `import()` and `import("…").Type`. */
function importOf(node: ts.Node): string | undefined {
  if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
    return node.moduleSpecifier.text;
  }
  if (ts.isExportDeclaration(node) && node.moduleSpecifier && ts.isStringLiteral(node.moduleSpecifier)) {
    return node.moduleSpecifier.text;
  }
  if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
    const [argument] = node.arguments;
    if (argument && ts.isStringLiteralLike(argument)) return argument.text;
  }
  if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
    const { literal } = node.argument;
    if (ts.isStringLiteral(literal)) return literal.text;
  }
  return undefined;
}

function isEnvironment(node: ts.Node): boolean {
  if (ts.isPropertyAccessExpression(node)) return /\bprocess\??\.env$/.test(node.getText());
  const from = ts.isImportDeclaration(node) ? node.moduleSpecifier.getText() : "";
  return /["'](node:)?process["']/.test(from) && /\benv\b/.test(node.getText());
}

function read(file: string): SourceFile {
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
  const imports: string[] = [];
  let readsEnvironment = false;
  const visit = (node: ts.Node): void => {
    const specifier = importOf(node);
    if (specifier) imports.push(specifier.startsWith(".") ? join(dirname(file), specifier) : specifier);
    readsEnvironment ||= isEnvironment(node);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { file, imports, readsEnvironment, lines: source.getLineStarts().length };
}

const files = globSync("src/**/*.ts").sort().map(read);

/** The imports that a rule forbids, as `from -> to`. */
function forbidden(rule: (from: string, to: string) => boolean): string[] {
  const named = (file: string): string => {
    const room = roomOf(file);
    return room ? `${file} (${room.name})` : file;
  };
  return files.flatMap(({ file, imports }) =>
    imports.filter((to) => rule(file, to)).map((to) => `${named(file)} -> ${named(to)}`),
  );
}

/** The first cycle found from each file on, once. */
function cycles(): string[] {
  const graph = new Map(files.map(({ file, imports }) => [file, imports]));
  const done = new Set<string>();
  const found: string[] = [];
  const walk = (file: string, path: readonly string[]): void => {
    if (path.includes(file)) found.push([...path.slice(path.indexOf(file)), file].join(" -> "));
    if (path.includes(file) || done.has(file)) return;
    for (const target of graph.get(file) ?? []) walk(target, [...path, file]);
    done.add(file);
  };
  for (const file of graph.keys()) walk(file, []);
  return found;
}

describe("src/", () => {
  it("has files to look at", () => {
    expect(files.length).toBeGreaterThan(0);
  });

  it("imports along the arrow", () => {
    const upwards = forbidden((from, to) => (roomOf(from)?.rank ?? 0) < (roomOf(to)?.rank ?? 0));
    const arrow = ROOMS.toSorted((a, b) => b.rank - a.rank).map(({ name }) => name);
    const advice = `an import never leads upwards in ${arrow.join(" -> ")}; pass in what the lower one needs`;
    expect(upwards, advice).toEqual([]);
  });

  it("keeps the services apart: they meet on the wire", () => {
    const toOther = forbidden((from, to) => {
      const [own, other] = [serviceOf(from), serviceOf(to)];
      return own !== undefined && other !== undefined && own !== other;
    });
    expect(toOther, "one service never imports another; call it by its contract").toEqual([]);
  });

  it("reads the environment in the programs only", () => {
    const readers = files.filter(({ readsEnvironment }) => readsEnvironment).map(({ file }) => file);
    expect(readers, "only the programs read process.env; take it, or a setting, as an argument").toEqual(
      PROGRAMS,
    );
  });

  it("uses generated code only where a contract is spoken", () => {
    const elsewhere = forbidden((from, to) => to.startsWith("gen/") && !SPEAKS_A_CONTRACT.test(from));
    const advice = "features use plain types; http.ts, rpc.ts, events.ts and *-client.ts translate";
    expect(elsewhere, advice).toEqual([]);
  });

  it("imports without cycles", () => {
    expect(cycles(), "what two files need of each other belongs in a third").toEqual([]);
  });

  it("holds one thing per file", () => {
    const long = files.filter(({ lines }) => lines > MAX_LINES).map(({ file, lines }) => `${file}: ${lines}`);
    expect(long, `no file over ${MAX_LINES} lines`).toEqual([]);
  });
});

describe("package.json", () => {
  it("has no dependency without a reason in CONTRIBUTING.md", () => {
    const manifest: Partial<Record<string, Record<string, string>>> = JSON.parse(
      readFileSync("package.json", "utf8"),
    );
    const reasons = readFileSync("CONTRIBUTING.md", "utf8");
    const names = Object.keys({ ...manifest["dependencies"], ...manifest["devDependencies"] });
    expect(names.filter((name) => !reasons.includes(`\`${name}\``))).toEqual([]);
  });

  it("starts the server with the flags that the image has", () => {
    const { start = "", dev = "" }: Partial<Record<string, string>> = JSON.parse(
      readFileSync("package.json", "utf8"),
    ).scripts;
    const flagsIn = (text: string) =>
      text.match(/--(max-semi-space|heap-growing|initial-old|no-allocation-site)[\w=-]*/g);
    const flags = flagsIn(start);
    expect(flags).toHaveLength(4);
    expect(flagsIn(dev)).toEqual(flags);
    expect(flagsIn(readFileSync("Dockerfile", "utf8"))).toEqual(flags);
  });
});
