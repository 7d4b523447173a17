/**
 * What a file of src/ exports, another file imports; all else it keeps to itself, types included. The tables of a
 * schema.ts, or of a file with such an ending, are exempt: drizzle-kit reads whatever it exports.
 */
import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";
import { expect, it } from "vitest";

const READ_BY_DRIZZLE_KIT = /[/-]schema\.ts$/;
/** Stands for every name of a file, in `import * as` and `import()`. */
const EVERYTHING = "*";

interface Module {
  readonly file: string;
  readonly exports: readonly string[];
  /** As `src/main.ts#name`. */
  readonly imports: readonly string[];
}

function exportsOf(statement: ts.Statement): string[] {
  if (ts.isExportDeclaration(statement)) {
    const clause = statement.exportClause;
    return clause && ts.isNamedExports(clause) ? clause.elements.map(({ name }) => name.text) : [];
  }
  const modifiers = ts.canHaveModifiers(statement) ? ts.getModifiers(statement) : undefined;
  if (!modifiers?.some(({ kind }) => kind === ts.SyntaxKind.ExportKeyword)) return [];
  if (ts.isVariableStatement(statement))
    return statement.declarationList.declarations.map(({ name }) => name.getText());
  const isNamed =
    ts.isFunctionDeclaration(statement) ||
    ts.isClassDeclaration(statement) ||
    ts.isInterfaceDeclaration(statement) ||
    ts.isTypeAliasDeclaration(statement);
  return isNamed && statement.name ? [statement.name.text] : [];
}

/** What a node takes from another file: its specifier, and the names there. */
function importsOf(node: ts.Node): [specifier: ts.Node, names: string[]] | undefined {
  const named = (elements: readonly (ts.ImportSpecifier | ts.ExportSpecifier)[]) =>
    elements.map(({ name, propertyName }) => (propertyName ?? name).text);
  if (ts.isImportDeclaration(node)) {
    const bindings = node.importClause?.namedBindings;
    if (!bindings) return [node.moduleSpecifier, []];
    return [node.moduleSpecifier, ts.isNamedImports(bindings) ? named(bindings.elements) : [EVERYTHING]];
  }
  if (ts.isExportDeclaration(node) && node.moduleSpecifier) {
    const clause = node.exportClause;
    return [
      node.moduleSpecifier,
      clause && ts.isNamedExports(clause) ? named(clause.elements) : [EVERYTHING],
    ];
  }
  if (ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword && node.arguments[0])
    return [node.arguments[0], [EVERYTHING]];
  if (ts.isImportTypeNode(node) && ts.isLiteralTypeNode(node.argument))
    return [node.argument.literal, [node.qualifier?.getText() ?? EVERYTHING]];
  return undefined;
}

function read(file: string): Module {
  const source = ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true);
  const imports: string[] = [];
  const visit = (node: ts.Node): void => {
    const [specifier, names] = importsOf(node) ?? [];
    if (specifier && names && ts.isStringLiteral(specifier) && specifier.text.startsWith("."))
      imports.push(...names.map((name) => `${join(dirname(file), specifier.text)}#${name}`));
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { file, exports: source.statements.flatMap(exportsOf), imports };
}

it("src/ exports what another file imports, and nothing else", () => {
  const modules = globSync("{src,test,scripts}/**/*.{ts,js}").map(read);
  const imported = new Set(modules.flatMap(({ imports }) => imports));
  const exported = modules
    .filter(({ file }) => file.startsWith("src/") && !READ_BY_DRIZZLE_KIT.test(file))
    .filter(({ file }) => !imported.has(`${file}#${EVERYTHING}`))
    .flatMap((module) => module.exports.map((name) => `${module.file}#${name}`));
  expect(exported.length).toBeGreaterThan(0);
  const unused = exported.filter((name) => !imported.has(name)).sort();
  expect(unused, "no other file imports it: take `export` away, or the whole of it").toEqual([]);
});
