/**
 * Holds the arrows between the rooms of src/: what may import what. The reasons are in CONTRIBUTING.md.
 * Imports that are only types count as well, unless a rule says otherwise.
 */
import { globSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";

interface Import {
  /** From the root, such as `src/platform/ids.ts`; a package by its name. */
  readonly target: string;
  readonly typeOnly: boolean;
}

interface SourceFile {
  readonly file: string;
  readonly lines: number;
  readonly imports: readonly Import[];
  readonly readsEnvironment: boolean;
}

/** Longer than that and a file holds more than one thing. */
const MAX_LINES = 400;
const SERVICES = ["src/auth/", "src/push/", "src/otp-verifier/"];
const MAY_READ_ENVIRONMENT = ["src/platform/settings.ts", "src/main.ts", "src/migrate.ts"];
const SPEAKS_A_CONTRACT = /^(http|rpc|events|.+-client)\.ts$/;
const BINDS_A_CONTRACT = /\/contract(\.ts$|\/)/;

/** Every module that a statement or expression names, with `import()` and `import("…").Type`. */
function importOf(node: ts.Node): { specifier: string; typeOnly: boolean } | undefined {
  if (ts.isImportDeclaration(node) && ts.isStringLiteral(node.moduleSpecifier)) {
    return { specifier: node.moduleSpecifier.text, typeOnly: node.importClause?.isTypeOnly ?? false };
  }
  if (ts.isExportDeclaration(node) && node.moduleSpecifier && ts.isStringLiteral(node.moduleSpecifier)) {
    return { specifier: node.moduleSpecifier.text, typeOnly: node.isTypeOnly };
  }
  if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword) {
    const [argument] = node.arguments;
    if (argument && ts.isStringLiteralLike(argument)) return { specifier: argument.text, typeOnly: false };
  }
  if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument)) {
    const { literal } = node.argument;
    if (ts.isStringLiteral(literal)) return { specifier: literal.text, typeOnly: true };
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
  const imports: Import[] = [];
  let readsEnvironment = false;
  const visit = (node: ts.Node): void => {
    const found = importOf(node);
    if (found) {
      const relative = found.specifier.startsWith(".");
      const target = relative ? join(dirname(file), found.specifier) : found.specifier;
      imports.push({ target, typeOnly: found.typeOnly });
    }
    readsEnvironment ||= isEnvironment(node);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { file, imports, readsEnvironment, lines: source.getLineStarts().length };
}

const files = globSync("src/**/*.ts").sort().map(read);

/** The imports that a rule forbids, as `from -> to`. */
function forbidden(rule: (from: string, to: Import) => boolean): string[] {
  return files.flatMap(({ file, imports }) =>
    imports.filter((to) => rule(file, to)).map(({ target }) => `${file} -> ${target}`),
  );
}

/** The first cycle found from each file on, once. */
function cycles(): string[] {
  const graph = new Map(files.map(({ file, imports }) => [file, imports.map(({ target }) => target)]));
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

  it("keeps the platform free of the services that stand on it", () => {
    const toService = forbidden(
      (from, { target }) =>
        from.startsWith("src/platform/") && SERVICES.some((service) => target.startsWith(service)),
    );
    expect(toService, "src/platform knows no service; pass in what it needs").toEqual([]);
  });

  it("keeps the services apart: they meet on the wire", () => {
    const toOther = forbidden((from, { target }) => {
      const own = SERVICES.find((service) => from.startsWith(service));
      return own !== undefined && SERVICES.some((service) => service !== own && target.startsWith(service));
    });
    expect(toOther, "one service never imports another; call it by its contract").toEqual([]);
  });

  it("reads the environment in one place", () => {
    const readers = files.filter(({ readsEnvironment }) => readsEnvironment).map(({ file }) => file);
    const others = readers.filter((file) => !MAY_READ_ENVIRONMENT.includes(file));
    expect(others, "only settings read process.env; take a setting as an argument").toEqual([]);
  });

  it("uses generated code only where a contract is spoken", () => {
    const elsewhere = forbidden((from, { target, typeOnly }) => {
      const allowed = SPEAKS_A_CONTRACT.test(basename(from)) || (typeOnly && BINDS_A_CONTRACT.test(from));
      return target.startsWith("gen/") && !allowed;
    });
    expect(elsewhere, "features use plain types; http.ts, rpc.ts, events.ts and clients translate").toEqual(
      [],
    );
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
});
