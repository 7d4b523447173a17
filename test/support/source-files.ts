/** What the files of src/ import, read by the compiler's own parser. */
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import ts from "typescript";

export interface SourceFile {
  readonly file: string;
  readonly text: string;
  readonly lines: number;
  /** From the root, such as `src/platform/crypto/random.ts`; a package by its name. */
  readonly imports: readonly string[];
  readonly readsEnvironment: boolean;
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

/** @param file from the root, as in `src/main.ts` */
export function readSourceFile(file: string): SourceFile {
  const text = readFileSync(file, "utf8");
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true);
  const imports: string[] = [];
  let readsEnvironment = false;
  const visit = (node: ts.Node): void => {
    const specifier = importOf(node);
    if (specifier) imports.push(specifier.startsWith(".") ? join(dirname(file), specifier) : specifier);
    readsEnvironment ||= isEnvironment(node);
    ts.forEachChild(node, visit);
  };
  visit(source);
  return { file, text, imports, readsEnvironment, lines: source.getLineStarts().length };
}
