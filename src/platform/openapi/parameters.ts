/** The parameters of a request as texts, which the validators check and coerce; and which texts are taken at all. */
import { invalidInput } from "../base/errors.ts";
import type { ContractOperation, ParameterObject } from "./document.ts";
import type { HeaderReader } from "./handlers.ts";

export interface ParameterValues {
  readonly path: Record<string, string>;
  readonly query: Record<string, string | string[]>;
  /** Only the headers whose schema is a constraint; by their names in lower case. */
  readonly header?: Record<string, string>;
}

/** Whether an operation has parameters in its path or its query. */
export function hasUrlParameters({ parameters }: ContractOperation): boolean {
  return parameters.some((parameter) => parameter.in === "path" || parameter.in === "query");
}

/** Makes a reader of the declared parameters of a request; others are ignored. */
export function parameterReader({ path: template, parameters }: ContractOperation) {
  const inPath = parameters.filter((parameter) => parameter.in === "path");
  const segments = template.split("/");
  const inSegments = inPath.map((parameter) => ({
    parameter,
    index: segments.indexOf(`{${parameter.name}}`),
  }));
  const inQuery = parameters.filter((parameter) => parameter.in === "query");
  const inHeader = parameters.filter((parameter) => parameter.in === "header" && isConstrained(parameter));

  return (url: () => string, header: HeaderReader): ParameterValues => {
    const path = inPath.length > 0 ? readPath(inSegments, url()) : {};
    const query = inQuery.length > 0 ? readQuery(inQuery, url()) : {};
    return inHeader.length > 0 ? { path, query, header: readHeaders(inHeader, header) } : { path, query };
  };
}

/** Whether the schema constrains the header. OpenAPI says to ignore the three headers that HTTP itself defines. */
function isConstrained({ name, required, schema }: ParameterObject): boolean {
  if (/^(accept|content-type|authorization)$/i.test(name)) return false;
  const { type, ...more } = schema ?? {};
  return required === true || (type !== undefined && type !== "string") || Object.keys(more).length > 0;
}

interface InSegment {
  readonly parameter: ParameterObject;
  readonly index: number;
}

/** Splits before it decodes, so that an encoded slash is a part of a value. */
function readPath(declared: readonly InSegment[], url: string): Record<string, string> {
  const start = url.indexOf("/", url.indexOf("//") + 2);
  const given = (/^[^?#]*/.exec(url.slice(start))?.[0] ?? "").split("/");
  const path: Record<string, string> = {};
  for (const { parameter, index } of declared) {
    const value = decodeSegment(parameter, given[index] ?? "");
    checkText(parameter, value);
    path[parameter.name] = value;
  }
  return path;
}

function decodeSegment(parameter: ParameterObject, segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    throw invalidInput([{ pointer: pointerTo(parameter), message: "is not percent-encoded UTF-8" }]);
  }
}

function readQuery(declared: readonly ParameterObject[], url: string): Record<string, string | string[]> {
  const query: Record<string, string | string[]> = {};
  const start = url.indexOf("?");
  if (start === -1) return query;
  const text = url.slice(start + 1);
  if (hidesInvalidUtf8(text)) throw invalidInput([{ pointer: "/query", message: "is not UTF-8" }]);
  const given = new URLSearchParams(text);
  for (const parameter of declared) {
    const { name, schema } = parameter;
    const values = given.getAll(name);
    const [value] = values;
    if (value === undefined) continue;
    for (const each of values) checkText(parameter, each);
    if (schema?.type === "array") query[name] = values;
    else if (values.length === 1) query[name] = schema?.type === "boolean" ? booleanText(value) : value;
    else throw invalidInput([{ pointer: pointerTo(parameter), message: "is given more than once" }]);
  }
  return query;
}

/** Python, C# and others write booleans as `True` and `False`. */
function booleanText(value: string): string {
  return /^(?:true|false)$/i.test(value) ? value.toLowerCase() : value;
}

function readHeaders(declared: readonly ParameterObject[], header: HeaderReader): Record<string, string> {
  const values: Record<string, string> = {};
  for (const parameter of declared) {
    const name = parameter.name.toLowerCase();
    const value = header(name);
    if (value === undefined) continue;
    checkText(parameter, value);
    values[name] = value;
  }
  return values;
}

/** Stricter than Ajv's coercion, which accepts `0x10`, ` 7`, `1e1` and `1e999` as integers. */
const integerPattern = /^-?\d+$/;
const numberPattern = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function checkText(parameter: ParameterObject, value: string): void {
  const type = parameter.schema?.type;
  const isNumeric = type === "integer" || type === "number";
  const pattern = type === "integer" ? integerPattern : numberPattern;
  const isNumber = pattern.test(value) && Number.isFinite(Number(value));
  const message = textProblem(value) ?? (isNumeric && !isNumber ? `must be ${type}` : undefined);
  if (message) throw invalidInput([{ pointer: pointerTo(parameter), message }]);
}

function pointerTo({ name, in: place }: ParameterObject): string {
  return `/${place}/${escapePointer(place === "header" ? name.toLowerCase() : name)}`;
}

/** The problem of a text that a text column or a JSON column cannot store unchanged; undefined if there is none. */
export function textProblem(text: string): string | undefined {
  if (text.includes("\0")) return "contains a NUL character";
  if (!text.isWellFormed()) return "contains half of a surrogate pair";
  return undefined;
}

/** Whether percent-encoded bytes are not UTF-8, so that URLSearchParams would make different texts equal. */
export function hidesInvalidUtf8(encoded: string): boolean {
  try {
    decodeURIComponent(encoded);
    return false;
  } catch {
    const runs = encoded.match(/(?:%[0-9a-f]{2})+/gi) ?? [];
    return runs.some((run) => !isDecodable(run));
  }
}

function isDecodable(run: string): boolean {
  try {
    decodeURIComponent(run);
    return true;
  } catch {
    return false;
  }
}

/** One step of a JSON pointer (RFC 6901). */
export function escapePointer(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
