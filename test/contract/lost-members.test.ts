/**
 * A member that is added to a document cannot be accepted and lost, nor described and never sent: the handlers do not
 * compile until they use it. Compiled here against documents to which a member was added, everywhere.
 */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { type Document, parseDocument } from "yaml";
import {
  entriesOf,
  type JsonObject,
  objectOf,
  referenceOf,
  resolveObject,
} from "../../scripts/openapi/document.ts";
import { closureOf, schemasIn } from "../support/openapi-documents.ts";

const root = resolve(import.meta.dirname, "../..");

/** Each document with the folder of the service that binds it. */
const bound = [
  { name: "auth", folder: "src/auth" },
  { name: "push-orchestration", folder: "src/push" },
  { name: "otp-verifier", folder: "src/development/otp-verifier" },
];

const { options } = ts.parseJsonConfigFileContent(
  ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile).config,
  ts.sys,
  root,
);
let previous: ts.Program | undefined;

/** A message of the compiler, with the operation in whose handler it is. */
interface CompileError {
  readonly operation: string | undefined;
  readonly message: string;
}

/** Compiles what binds a document, as it would be after `npm run gen` with this document. */
async function compile(name: string, folder: string, changed: JsonObject): Promise<CompileError[]> {
  const generated = join(root, `gen/openapi/${name}.ts`);
  const types = astToString(await openapiTS(JSON.stringify(changed)));
  const host = ts.createCompilerHost(options);
  host.getSourceFile = (file, language) => {
    const same = file === generated ? undefined : previous?.getSourceFile(file);
    const text = file === generated ? types : ts.sys.readFile(file);
    return same ?? (text === undefined ? undefined : ts.createSourceFile(file, text, language, true));
  };
  const files = ["http.ts", "service.ts"].map((file) => join(root, folder, file));
  const program = ts.createProgram(files, options, host, previous);
  previous = program;
  return files.flatMap((file) =>
    program
      .getSemanticDiagnostics(program.getSourceFile(file))
      .map(({ file: source, start, messageText }) => ({
        operation: source && start !== undefined ? handlerAt(source, start) : undefined,
        message: ts.flattenDiagnosticMessageText(messageText, "\n"),
      })),
  );
}

/** The members that a message of the compiler says a value lacks; types that it quotes do not count. */
function missingMembers(message: string): string[] {
  const one = [...message.matchAll(/Property '(\w+)' is missing in type/g)].map(([, name = ""]) => name);
  const several = [...message.matchAll(/is missing the following properties from type .*: ([\w, ]+)/g)];
  return [...one, ...several.flatMap(([, names = ""]) => names.match(/\w+/g) ?? [])];
}

/** The name of the method that the position is in. */
function handlerAt(source: ts.SourceFile, position: number): string | undefined {
  const find = (node: ts.Node): string | undefined => {
    if (position < node.getStart(source) || position >= node.end) return undefined;
    if (ts.isMethodDeclaration(node)) return node.name.getText(source);
    return ts.forEachChild(node, find);
  };
  return find(source);
}

describe.each(bound)("$name", ({ name, folder }) => {
  const text = readFileSync(join(root, `openapi/${name}.yaml`), "utf8");
  const contract = objectOf(parseDocument(text).toJS());
  const operations = entriesOf(contract["paths"]).flatMap(([path, item]) =>
    entriesOf(item)
      .map(([method, each]) => ({ at: ["paths", path, method], self: objectOf(each) }))
      .filter(({ self }) => "operationId" in self)
      .map((operation) => ({ ...operation, id: String(operation.self["operationId"]) })),
  );

  /** Compiles against the document with a change. */
  function compileWith(change: (document: Document) => void): Promise<CompileError[]> {
    const document = parseDocument(text);
    change(document);
    return compile(name, folder, objectOf(document.toJS()));
  }

  it("compiles as it is", async () => {
    expect(await compileWith(() => {})).toEqual([]);
  }, 60_000);

  it("finds each handler that ignores a member of its body", async () => {
    const withBody = operations.flatMap(({ id, self }) =>
      entriesOf(objectOf(self["requestBody"])["content"]).map(([, media]) => {
        const schema = referenceOf(objectOf(media)["schema"])?.split("/").at(-1) ?? "";
        return { id, schema, added: `addedTo${schema}` };
      }),
    );
    expect(withBody.length).toBeGreaterThan(2);
    const errors = await compileWith((document) => {
      for (const { schema, added } of withBody)
        document.setIn(["components", "schemas", schema, "properties", added], { type: "string" });
    });
    const found = ({ id, added }: { id: string; added: string }) =>
      errors.some(({ operation, message }) => operation === id && message.includes(`'${added}'`));
    expect(withBody.filter((each) => !found(each))).toEqual([]);
  }, 60_000);

  it("finds each handler that ignores a parameter of its query", async () => {
    const withQuery = operations.filter(({ self }) =>
      [self["parameters"]].flat().some((each) => resolveObject(contract, each)["in"] === "query"),
    );
    expect(withQuery.length).toBeGreaterThan(0);
    const errors = await compileWith((document) => {
      for (const { at, id } of withQuery)
        document.addIn([...at, "parameters"], {
          name: `addedTo${id}`,
          in: "query",
          schema: { type: "string" },
        });
    });
    const found = ({ id }: { id: string }) =>
      errors.some(({ operation, message }) => operation === id && message.includes(`'addedTo${id}'`));
    expect(withQuery.filter((each) => !found(each)).map(({ id }) => id)).toEqual([]);
  }, 60_000);

  const successes = operations.flatMap(({ id, self }) =>
    entriesOf(self["responses"])
      .filter(([status]) => status.startsWith("2"))
      .flatMap(([, response]) => schemasIn(id, objectOf(resolveObject(contract, response)["content"]))),
  );
  const answers = closureOf(contract, successes)
    .filter(({ schema }) => "properties" in schema)
    .map(({ at }) => at.replace("#/components/schemas/", ""));

  /** Those of the schemas whose added member the compiler says is missing. One compilation is for many. */
  async function findMissing(): Promise<ReadonlySet<string>> {
    const found = new Set<string>();
    // An error in what surrounds a schema hides the one in the schema: what was not found is tried again without it.
    for (let before = -1; found.size > before && found.size < answers.length; ) {
      before = found.size;
      const added = new Map(
        answers.filter((schema) => !found.has(schema)).map((schema) => [`addedTo${schema}`, schema]),
      );
      const errors = await compileWith((document) => {
        for (const [member, schema] of added)
          document.setIn(["components", "schemas", schema, "properties", member], { type: "string" });
      });
      for (const member of errors.flatMap(({ message }) => missingMembers(message))) {
        const schema = added.get(member);
        if (schema !== undefined) found.add(schema);
      }
    }
    return found;
  }

  let missing: Promise<ReadonlySet<string>> | undefined;
  it.each(answers)(
    "finds that responses lack a member of %s",
    async (schema) => {
      missing ??= findMissing();
      expect(await missing).toContain(schema);
    },
    60_000,
  );
});
