/**
 * Holds a response against an OpenAPI document, as a consumer would: read from the file, with a validator of
 * its own, knowing nothing of the server's code.
 */
import { readFileSync } from "node:fs";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { parse } from "yaml";
import { withClosedSchemas } from "../../src/platform/openapi/closed.ts";

interface Reference {
  $ref?: string;
}
interface Resolved<T> {
  value: T;
  pointer: string;
}
interface HeaderObject extends Reference {
  required?: boolean;
  schema?: object;
}
interface ResponseObject extends Reference {
  headers?: Record<string, HeaderObject>;
  content?: Record<string, { schema?: object }>;
}
interface OperationObject {
  operationId: string;
  responses: Record<string, ResponseObject>;
}
interface DocumentObject {
  servers: { url: string }[];
  components?: object;
  paths: Record<string, Record<string, unknown>>;
}

const methods = ["get", "put", "post", "delete", "patch"] as const;
/** HTTP's own headers, which no document declares. */
const undeclared = new Set([
  "content-type",
  "content-length",
  "date",
  "connection",
  "keep-alive",
  "transfer-encoding",
  "vary",
]);

/** One operation of a document. */
export interface Operation {
  readonly id: string;
  readonly method: string;
  /** Template, with the server's path in front. */
  readonly path: string;
  /** Declared statuses. */
  readonly statuses: readonly number[];
}

export interface Contract {
  readonly operations: readonly Operation[];
  /** `<operation> <status>` of every response that was checked. */
  readonly reached: ReadonlySet<string>;
  /**
   * Checks one response to an operation: status, headers, media type, body.
   * @throws an Error that lists everything in which it differs from the document
   */
  check(operationId: string, response: Response, body: string): void;
}

const checkers = new Map<string, ReturnType<typeof createChecker>>();

/** @param name file in openapi/, without its ending */
export function readContract(name: string): Contract {
  const { operations, problems } = checkers.get(name) ?? createChecker(name);
  checkers.set(name, { operations, problems });
  const reached = new Set<string>();
  return {
    operations,
    reached,
    check(operationId, response, body) {
      const list = problems(operationId, response, body);
      if (list.length > 0) throw new Error(`${operationId} ${response.status}: ${list.join("; ")}\n${body}`);
      reached.add(`${operationId} ${response.status}`);
    },
  };
}

/** Reads the document, once for all tests of a file. */
function createChecker(name: string) {
  const document: DocumentObject = parse(
    readFileSync(new URL(`../../openapi/${name}.yaml`, import.meta.url), "utf8"),
  );
  const ajv = new Ajv2020({ strict: false, allErrors: true, coerceTypes: false });
  addFormats.default(ajv);
  // Narrower than the formats, as the documents say in words: lower case, and UTC with milliseconds.
  ajv.addFormat("uuid", /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/);
  ajv.addFormat("date-time", /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$/);
  ajv.addSchema(withClosedSchemas(document), "document");

  /** Follows a reference; `pointer` is where the value itself stands. */
  function resolve<T extends Reference>(value: T, pointer: string): Resolved<T> {
    if (value.$ref === undefined) return { value, pointer };
    let target: unknown = document;
    for (const part of value.$ref.slice(2).split("/")) {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      target = typeof target === "object" && target !== null ? Reflect.get(target, key) : undefined;
    }
    return resolve(target as T, value.$ref);
  }
  const at = (pointer: string, ...keys: string[]) =>
    [pointer, ...keys.map((key) => key.replaceAll("~", "~0").replaceAll("/", "~1"))].join("/");

  const found = new Map<
    string,
    { operation: Operation; responses: Record<string, ResponseObject>; pointer: string }
  >();
  for (const [path, item] of Object.entries(document.paths)) {
    const base = new URL(document.servers[0]?.url ?? "").pathname;
    for (const method of methods) {
      const operation = item[method] as OperationObject | undefined;
      if (!operation) continue;
      const { operationId: id, responses } = operation;
      const statuses = Object.keys(responses).map(Number);
      const pointer = at("#", "paths", path, method, "responses");
      found.set(id, {
        operation: { id, method: method.toUpperCase(), path: base + path, statuses },
        responses,
        pointer,
      });
    }
  }

  const compiled = new Map<string, ValidateFunction>();
  /** Compiling takes longer than most tests. */
  function validatorAt(pointer: string): ValidateFunction {
    const validator = compiled.get(pointer) ?? ajv.compile({ $ref: `document${pointer}` });
    compiled.set(pointer, validator);
    return validator;
  }

  function headerProblem(name: string, { value, pointer }: Resolved<HeaderObject>, sent: string | null) {
    if (sent === null) return value.required ? `header ${name} is missing` : undefined;
    const number = /^-?\d+$/.test(sent) ? Number(sent) : sent;
    const isValid = validatorAt(at(pointer, "schema"));
    const isRight = isValid(sent) || isValid(number);
    return isRight ? undefined : `header ${name}: ${sent} is not what the schema says`;
  }

  function headerProblems({ value, pointer }: Resolved<ResponseObject>, response: Response): string[] {
    const list: string[] = [];
    const names = new Set<string>();
    for (const [name, reference] of Object.entries(value.headers ?? {})) {
      names.add(name.toLowerCase());
      const problem = headerProblem(
        name,
        resolve(reference, at(pointer, "headers", name)),
        response.headers.get(name),
      );
      if (problem) list.push(problem);
    }
    for (const [name] of response.headers) {
      if (!names.has(name) && !undeclared.has(name)) list.push(`header ${name} is not declared`);
    }
    return list;
  }

  function bodyProblems(
    { value, pointer }: Resolved<ResponseObject>,
    response: Response,
    body: string,
  ): string[] {
    if (!value.content) return body === "" ? [] : ["there is a body, and none is declared"];
    const mediaType = response.headers.get("content-type")?.split(";")[0];
    if (mediaType === undefined || !value.content[mediaType])
      return [`media type ${mediaType} is not declared`];
    const isValid = validatorAt(at(pointer, "content", mediaType, "schema"));
    if (isValid(JSON.parse(body))) return [];
    return (isValid.errors ?? []).map(
      ({ instancePath, message, params }) => `body${instancePath} ${message} ${JSON.stringify(params)}`,
    );
  }

  function problems(operationId: string, response: Response, body: string): string[] {
    const entry = found.get(operationId);
    if (!entry) return [`the document has no operation ${operationId}`];
    const declared = entry.responses[String(response.status)];
    if (!declared) return [`status ${response.status} is not declared`];
    const resolved = resolve(declared, at(entry.pointer, String(response.status)));
    return [...headerProblems(resolved, response), ...bodyProblems(resolved, response, body)];
  }

  return { operations: [...found.values()].map(({ operation }) => operation), problems };
}
