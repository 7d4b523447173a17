/**
 * An OpenAPI 3.1 document, read and compiled: operations and validators of openapi-backend, with an Ajv for 2020-12.
 */
import { readFileSync } from "node:fs";
import { Ajv2020, type FuncKeywordDefinition, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { type Document, OpenAPIBackend, type Operation } from "openapi-backend";
import { type Priority, priorities } from "../base/priority.ts";
import { closed } from "./closed.ts";
import { type Protos, readProtos } from "./protos.ts";

/** The part of a (dereferenced) OpenAPI response that is used here. */
export interface ResponseObject {
  readonly headers?: Readonly<Record<string, { readonly required?: boolean; readonly schema?: object }>>;
  readonly content?: Readonly<Record<string, { readonly schema?: object }>>;
  /** Media types that the content has beside the listed ones. */
  readonly "x-also-named"?: readonly string[];
}

/** The part of a (dereferenced) OpenAPI parameter that is used here. */
export interface ParameterObject {
  readonly name: string;
  /** path, query or header. */
  readonly in: string;
  readonly required?: boolean;
  readonly schema?: { readonly type?: string };
}

interface SecurityScheme {
  /** http or apiKey. */
  readonly type: string;
  /** The scheme of `http`: basic or bearer. */
  readonly scheme?: string;
  /** The realm of the challenge of `http` (RFC 9110 section 11.5). */
  readonly "x-realm"?: string;
  /** The parameter that carries the key of `apiKey`, and where it is. */
  readonly name?: string;
  readonly in?: string;
}

/** The format of an operation's errors: RFC 9457, or RFC 6749 section 5.2. */
type ErrorFormat = "problem" | "oauth";

export interface ContractOperation {
  readonly id: string;
  /** Lower case. */
  readonly method: string;
  /** The path as in the document, after that of the server. */
  readonly path: string;
  /** `x-also-at` of the path: a second path, of the host, at which it is served too. */
  readonly alsoAt: string | undefined;
  /** Alternatives. Each lists schemes, all of which must succeed. Empty: public. */
  readonly security: readonly (readonly string[])[];
  /** Whether one of the alternatives is empty: then the handler is called without a caller too, and decides. */
  readonly isSecurityOptional: boolean;
  /** The schemes that `security` names, each once, in its order. */
  readonly schemes: readonly SecurityScheme[];
  readonly parameters: readonly ParameterObject[];
  /** Media types of the body, those of `x-also-accepts` last, without a schema; undefined if there is no body. */
  readonly bodyTypes: readonly string[] | undefined;
  readonly bodyRequired: boolean;
  /** `x-body-limit` of the operation, in bytes: larger bodies are refused; 65,536 unless it is stated. */
  readonly bodyLimit: number;
  readonly responses: Readonly<Record<string, ResponseObject>>;
  /** `x-error-format` of the operation; `problem` unless it is stated. */
  readonly errorFormat: ErrorFormat;
  /** `x-priority` of the operation, for when not all requests can be answered; `low` unless it is stated. */
  readonly priority: Priority;
  /** Validators of `{path, query, header, requestBody}`; compiled at first use, as that takes most of a start. */
  requestValidators(): readonly ValidateFunction[];
  /** Makes the validator of a JSON response, if there is a schema for it. It refuses members that are not described. */
  compileResponse(status: number, mediaType: string): ValidateFunction | undefined;
}

export interface ContractDocument {
  readonly protos: Protos | undefined;
  readonly yaml: string;
  readonly json: object;
  readonly title: string;
  /** URL of the server that it names, as it is written there. */
  readonly serverUrl: string;
  /** Path of that URL, such as /api/orders. */
  readonly basePath: string;
  readonly operations: readonly ContractOperation[];
}

/** Characters of a text, as JSON Schema counts them: a surrogate pair is one. */
function characters(text: string): number {
  let count = text.length;
  for (let at = 0; at < text.length; at += 1) if ((text.codePointAt(at) ?? 0) > 0xffff) count -= 1;
  return count;
}

/**
 * Replacements of Ajv's own length keywords, which count the characters of every text: of a thousand of them, that took
 * 3 % of the time of a request. For most texts `length` alone decides. They stand before `pattern`, as Ajv's own do.
 */
const lengthKeywords = [
  {
    ...{ keyword: "maxLength", type: "string", schemaType: "number", before: "pattern" },
    compile: (limit: number) => (text: string) => text.length <= limit || characters(text) <= limit,
    error: { message: ({ schema }) => `must NOT have more than ${schema} characters` },
  },
  {
    ...{ keyword: "minLength", type: "string", schemaType: "number", before: "pattern" },
    compile: (limit: number) => (text: string) => text.length >= 2 * limit || characters(text) >= limit,
    error: { message: ({ schema }) => `must NOT have fewer than ${schema} characters` },
  },
] as const satisfies FuncKeywordDefinition[];

/** An Ajv for OpenAPI 3.1: dialect 2020-12, formats, and OpenAPI's annotations accepted. */
function createAjv(coerceTypes: boolean): Ajv2020 {
  const ajv = new Ajv2020({ strict: false, allErrors: true, coerceTypes });
  for (const keyword of lengthKeywords) ajv.removeKeyword(keyword.keyword).addKeyword(keyword);
  addFormats.default(ajv);
  // The one of ajv-formats also takes a URN, which no database does.
  ajv.addFormat("uuid", /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i);
  return ajv;
}

/** @throws if the document has variables, several servers, or servers of a path, which many readers do not know */
function serverUrlOf({ info, servers = [], paths = {} }: Document): string {
  const [server, ...more] = servers;
  const isPlain = server && !server.variables && /^https?:\/\/[^/]+\/.*[^/]$/.test(server.url);
  const named = Object.values(paths).some((path) => path?.servers);
  if (isPlain && more.length === 0 && !named) return server.url;
  throw new Error(`${info.title}: a document names one server, with a plain URL that has a path`);
}

/** A document in both formats: `json` is generated from `yaml`, and is much faster to parse. */
export interface ContractTexts {
  readonly protos?: Protos;
  readonly yaml: string;
  readonly json: string;
}

/** @param name of a document in openapi/ @param protos the folder of the service in proto/, if it has one */
export function contractTexts(name: string, protos?: string): ContractTexts {
  const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");
  const texts = { yaml: read(`openapi/${name}.yaml`), json: read(`gen/openapi/${name}.json`) };
  return protos === undefined ? texts : { ...texts, protos: readProtos(protos) };
}

/** The part of a contract that follows from the text of a document alone. */
type Compiled = Omit<ContractDocument, "protos" | "yaml">;

const contracts = new Map<string, Promise<Compiled>>();

/** Reads a document, once in a process. @throws for a mistake in it */
export async function loadContract({ yaml, json, protos }: ContractTexts): Promise<ContractDocument> {
  const known = contracts.get(json) ?? compile(JSON.parse(json));
  contracts.set(json, known);
  return { yaml, protos, ...(await known) };
}

async function compile(json: Document): Promise<Compiled> {
  const strict = createAjv(false);
  const coercing = createAjv(true);
  const backend = new OpenAPIBackend({
    definition: structuredClone(json),
    quick: true,
    strict: true,
    customizeAjv: (_ajv, options) => (options?.coerceTypes ? coercing : strict),
  });
  await backend.init();
  const serverUrl = serverUrlOf(json);
  const basePath = new URL(serverUrl).pathname;
  const operations = backend.router.getOperations().map((operation) => {
    const pathItem: PathItem | undefined = json.paths?.[operation.path];
    const paths = { path: basePath + operation.path, alsoAt: pathItem?.["x-also-at"] };
    return describeOperation(backend, operation, paths, schemesOf(json, operation), strict);
  });
  return { json, title: json.info.title, serverUrl, basePath, operations };
}

interface PathItem {
  readonly servers?: readonly object[];
  readonly "x-also-at"?: string;
}

/** The dereferenced shape of members that openapi-backend types as "object or reference". */
interface Dereferenced {
  readonly parameters?: readonly ParameterObject[];
  readonly requestBody?: {
    readonly required?: boolean;
    readonly content: Readonly<Record<string, unknown>>;
    /** Further media types of the same value; generators of clients do not see them. */
    readonly "x-also-accepts"?: readonly string[];
  };
  readonly responses?: Readonly<Record<string, ResponseObject>>;
  readonly "x-error-format"?: string;
  readonly "x-priority"?: string;
  readonly "x-body-limit"?: number;
}

/** @throws if the document states an unknown format */
function errorFormatOf(id: string, { "x-error-format": format = "problem" }: Dereferenced): ErrorFormat {
  if (format === "problem" || format === "oauth") return format;
  throw new Error(`${id}: there is no error format ${format}`);
}

/** @throws if the document states an unknown priority */
function priorityOf(id: string, { "x-priority": stated = "low" }: Dereferenced): Priority {
  const priority = priorities.find((known) => known === stated);
  if (priority) return priority;
  throw new Error(`${id}: there is no priority ${stated}`);
}

/** @throws if the operation names a scheme that the document does not have */
function schemesOf({ components }: Document, { operationId, security = [] }: Operation): SecurityScheme[] {
  const names = new Set(security.flatMap((alternative) => Object.keys(alternative)));
  return [...names].map((name) => {
    const scheme = components?.securitySchemes?.[name];
    if (!scheme || "$ref" in scheme) throw new Error(`${operationId}: there is no security scheme ${name}`);
    return scheme;
  });
}

function describeOperation(
  backend: OpenAPIBackend,
  operation: Operation,
  paths: Pick<ContractOperation, "path" | "alsoAt">,
  schemes: readonly SecurityScheme[],
  ajv: Ajv2020,
): ContractOperation {
  const id = operation.operationId;
  if (!id) throw new Error(`${operation.method} ${operation.path} has no operationId`);
  const dereferenced = operation as Dereferenced;
  const { parameters = [], requestBody, responses = {} } = dereferenced;
  const security = (operation.security ?? []).map((alternative) => Object.keys(alternative));
  return {
    id,
    method: operation.method,
    ...paths,
    security,
    isSecurityOptional: security.some((alternative) => alternative.length === 0),
    schemes,
    parameters,
    bodyTypes: requestBody && [...Object.keys(requestBody.content), ...(requestBody["x-also-accepts"] ?? [])],
    bodyRequired: requestBody?.required ?? false,
    bodyLimit: dereferenced["x-body-limit"] ?? 65_536,
    responses,
    errorFormat: errorFormatOf(id, dereferenced),
    priority: priorityOf(id, dereferenced),
    requestValidators() {
      return backend.validator.getRequestValidatorsForOperation(id) ?? [];
    },
    compileResponse(status, mediaType) {
      const schema = responses[status]?.content?.[mediaType]?.schema;
      return schema && ajv.compile(closed(schema));
    },
  };
}
