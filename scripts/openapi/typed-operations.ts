/** What a typed client needs of the documents beside their types: where each operation is, and the codes of errors. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { parse } from "yaml";
import { ROOT } from "../command.ts";

interface Operation {
  readonly operationId?: string;
  readonly requestBody?: { readonly content: Readonly<Record<string, unknown>> };
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, { readonly enum?: readonly string[]; description?: string }>>;
  };
}

const HEADER = "/** Generated from openapi/ by `npm run gen`. Do not edit. */\n";

async function read(name: string): Promise<Document> {
  return parse(await readFile(join(ROOT, "openapi", `${name}.yaml`), "utf8"));
}

/** A table for each service, of its operations by their ids. */
export async function operationTables(): Promise<string> {
  const tables = { auth: await read("auth"), push: await read("push-orchestration") };
  const texts = Object.entries(tables).map(
    ([name, document]) =>
      `\n/** The operations of ${name}. \`form\`: the body is a form (RFC 6749), and no JSON. */\n` +
      `export const ${name}Operations = {\n${rowsOf(document).join("")}} as const;\n`,
  );
  return [HEADER, ...texts].join("");
}

function rowsOf({ paths }: Document): string[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { operationId, requestBody }]) => {
      if (operationId === undefined) return [];
      const isForm = "application/x-www-form-urlencoded" in (requestBody?.content ?? {});
      const where = `method: "${method.toUpperCase()}", path: "${path}"`;
      return [`  ${operationId}: { ${where}${isForm ? ", form: true" : ""} },\n`];
    }),
  );
}

/** The closed lists of error codes, as unions. */
export async function errorCodes(): Promise<string> {
  const documents = [await read("auth"), await read("push-orchestration")];
  const schemas = Object.assign({}, ...documents.map(({ components }) => components.schemas));
  const lists = Object.entries<Document["components"]["schemas"][string]>(schemas).filter(
    ([name, schema]) => name.endsWith("Code") && schema.enum,
  );
  const texts = lists.map(([name, { enum: codes = [], description }]) => {
    const union = codes.map((code) => `\n  | "${code}"`).join("");
    const text = description?.trim().replaceAll(/\s+/g, " ");
    return `\n/** ${text} */\nexport type ${name} =${union};\n`;
  });
  return [HEADER, ...texts].join("");
}
