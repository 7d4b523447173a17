/**
 * Holds the promise that every column is typed: a column that is renamed in a schema breaks the compile at every
 * use of it, in SQL written by hand too; and nothing in src/ can go round that.
 */
import { globSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { getTableColumns, is } from "drizzle-orm";
import { getTableConfig, PgTable } from "drizzle-orm/pg-core";
import ts from "typescript";
import { beforeAll, describe, expect, test } from "vitest";
import * as codesSchema from "../src/auth/codes-schema.ts";
import * as authSchema from "../src/auth/schema.ts";
import * as recipientsSchema from "../src/push/recipients-schema.ts";
import * as removalsSchema from "../src/push/removals-schema.ts";
import * as pushSchema from "../src/push/schema.ts";

const root = resolve(import.meta.dirname, "..");
const sources = globSync("src/**/*.ts", { cwd: root }).map((file) => ({
  file,
  source: ts.createSourceFile(file, readFileSync(join(root, file), "utf8"), ts.ScriptTarget.Latest, true),
}));
const tables = [authSchema, codesSchema, pushSchema, recipientsSchema, removalsSchema]
  .flatMap((schema): unknown[] => Object.values(schema))
  .filter((one) => is(one, PgTable));

function nodesOf(node: ts.Node, found: ts.Node[] = []): ts.Node[] {
  found.push(node);
  ts.forEachChild(node, (child) => void nodesOf(child, found));
  return found;
}

function isSql(node: ts.Node): node is ts.TaggedTemplateExpression {
  return ts.isTaggedTemplateExpression(node) && node.tag.getText() === "sql";
}

/** The texts of SQL in a file: of its templates, and what is made one by sql.raw and sql.identifier. */
function sqlTexts(source: ts.SourceFile): string[] {
  return nodesOf(source).flatMap((node) => {
    if (isSql(node)) {
      if (ts.isNoSubstitutionTemplateLiteral(node.template)) return [node.template.text];
      const { head, templateSpans } = node.template;
      return [[head.text, ...templateSpans.map(({ literal }) => literal.text)].join(" \0 ")];
    }
    if (!ts.isCallExpression(node) || !/^sql\.(raw|identifier)$/.test(node.expression.getText())) return [];
    return node.arguments.filter((one) => ts.isStringLiteralLike(one)).map((one) => one.text);
  });
}

/** Words of SQL that are not names. */
const constructs = /for (no key )?(update|share)\b|primary key\b|'(?:[^']|'')*'|--.*$/gm;

/** The names in a text of SQL that are written out. */
function namesIn(text: string): string[] {
  return text.replaceAll(constructs, " ").match(/[a-z_][a-z0-9_]*/gi) ?? [];
}

describe("SQL in src/", () => {
  const columns = new Set(
    tables.flatMap((table) => Object.values(getTableColumns(table)).map(({ name }) => name)),
  );
  const ours = new Set(tables.map((table) => getTableConfig(table).schema));

  test("the check finds names that are written out, and no values or constructs", () => {
    const text = "select \"user_id\", c.planned from x where y = 'state' for share -- title";
    expect(namesIn(text).filter((name) => columns.has(name))).toEqual(["user_id", "planned"]);
  });

  test("names no column of ours but through its schema", () => {
    const written = sources.flatMap(({ file, source }) =>
      sqlTexts(source).flatMap((text) =>
        namesIn(text)
          .filter((name) => columns.has(name))
          .map((name) => `${file}: ${name}`),
      ),
    );
    expect(written).toEqual([]);
  });

  test("names no table of ours but through its schema", () => {
    const written = sources.flatMap(({ file, source }) =>
      sqlTexts(source).flatMap((text) => {
        const qualified = text.replaceAll(constructs, " ").match(/\b[a-z_]+\.[a-z_]+/g) ?? [];
        return qualified.filter((name) => ours.has(name.split(".")[0])).map((name) => `${file}: ${name}`);
      }),
    );
    expect(written).toEqual([]);
  });

  test("gets no unchecked type", () => {
    const asserting = sources.flatMap(({ file, source }) =>
      nodesOf(source).flatMap((node) => {
        if (ts.isTaggedTemplateExpression(node)) {
          return isSql(node) && node.typeArguments ? [`${file}: ${node.tag.getText()}`] : [];
        }
        if (!ts.isCallExpression(node) || !node.typeArguments) return [];
        const callee = node.expression.getText();
        return /(^|\.)(execute|as|rows|rawRows|selection|computed)$/.test(callee)
          ? [`${file}: ${callee}`]
          : [];
      }),
    );
    expect(asserting).toEqual([]);
  });
});

describe("a column that is renamed in its schema", () => {
  /** Keys that no other thing in src/ is called by in SQL. */
  const renamed = [
    { schema: "src/auth/schema.ts", table: "authorizations", key: "clientGeneration" },
    { schema: "src/push/schema.ts", table: "historyBlocks", key: "recipientBits" },
    { schema: "src/push/schema.ts", table: "deliveryChunks", key: "deviceIds" },
    { schema: "src/push/schema.ts", table: "notifications", key: "plannedAt" },
  ];
  const errors: { readonly file: string; readonly message: string }[] = [];

  /** The schema with all of them renamed. */
  function rename(file: string, text: string): string {
    return renamed
      .filter(({ schema }) => file.endsWith(schema))
      .reduce(
        (changed, { key }) => changed.replaceAll(new RegExp(`\\b${key}\\b`, "g"), `${key}Renamed`),
        text,
      );
  }

  beforeAll(() => {
    const { config } = ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile);
    const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
    const host = ts.createCompilerHost(options);
    const readFile = host.readFile;
    host.readFile = (file) => {
      const text = readFile(file);
      return text === undefined ? text : rename(file, text);
    };
    const program = ts.createProgram(
      sources.map(({ file }) => join(root, file)),
      options,
      host,
    );
    for (const { file } of sources) {
      for (const { messageText } of program.getSemanticDiagnostics(program.getSourceFile(join(root, file)))) {
        errors.push({ file, message: ts.flattenDiagnosticMessageText(messageText, "\n") });
      }
    }
  }, 180_000);

  /** Files with the key inside the interpolations of SQL. */
  function usesOf(key: string): string[] {
    return sources
      .filter(
        ({ file, source }) =>
          !file.endsWith("/schema.ts") &&
          nodesOf(source).some(
            (node) =>
              isSql(node) &&
              ts.isTemplateExpression(node.template) &&
              node.template.templateSpans.some(({ expression }) =>
                new RegExp(`\\b${key}\\b`).test(expression.getText()),
              ),
          ),
      )
      .map(({ file }) => file);
  }

  test.each(renamed)("breaks the compile at every use: $key", ({ schema, key }) => {
    const uses = usesOf(key);
    expect(uses.length).toBeGreaterThan(2);
    const named = errors.filter(({ message }) => message.includes(`'${key}'`)).map(({ file }) => file);
    // The query builder's uses break as well.
    expect(uses.filter((file) => file !== schema && !named.includes(file))).toEqual([]);
  });

  test("breaks nothing else", () => {
    const others = errors.filter(({ message }) => !renamed.some(({ key }) => message.includes(`'${key}'`)));
    expect(others).toEqual([]);
  });
});
