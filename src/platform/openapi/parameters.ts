/** The parameters of a request: path, query and headers, as the texts that the validators check and coerce. */
import type { Context } from "hono";
import { invalidInput } from "../base/errors.ts";
import type { ContractOperation, ParameterObject } from "./document.ts";
import type { HeaderReader } from "./headers.ts";
import { escapePointer, hidesInvalidUtf8, textProblem } from "./text.ts";

/** By place and name. */
export interface ParameterValues {
  readonly path: Record<string, string>;
  readonly query: Record<string, string | string[]>;
  /** Only of those headers whose schema says something; by their names in lower case. */
  readonly header?: Record<string, string>;
}

/**
 * Reads the declared parameters of a request; others are ignored. Which there are is worked out once. Without any in
 * path or query, Hono need not make its own request object.
 */
export function parameterReader({ parameters }: ContractOperation) {
  const inPath = parameters.filter((parameter) => parameter.in === "path");
  const inQuery = parameters.filter((parameter) => parameter.in === "query");
  const inHeader = parameters.filter((parameter) => parameter.in === "header" && isConstrained(parameter));

  return (c: Context, header: HeaderReader): ParameterValues => {
    const path: Record<string, string> = inPath.length > 0 ? c.req.param() : {};
    for (const parameter of inPath) checkText(parameter, path[parameter.name] ?? "");
    const query = inQuery.length > 0 ? readQuery(inQuery, c.req.url) : {};
    return inHeader.length > 0 ? { path, query, header: readHeaders(inHeader, header) } : { path, query };
  };
}

/** Whether there is anything to check. HTTP itself owns the three that OpenAPI says to ignore. */
function isConstrained({ name, required, schema }: ParameterObject): boolean {
  if (/^(accept|content-type|authorization)$/i.test(name)) return false;
  const { type, ...more } = schema ?? {};
  return required === true || (type !== undefined && type !== "string") || Object.keys(more).length > 0;
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
    else if (values.length === 1) query[name] = value;
    else throw invalidInput([{ pointer: pointerTo(parameter), message: "is given more than once" }]);
  }
  return query;
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

/** Ajv also takes `0x10`, ` 7`, `1e1` and `1e999` for integers. */
const integerPattern = /^-?\d+$/;
const numberPattern = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function checkText(parameter: ParameterObject, value: string): void {
  const type = parameter.schema?.type;
  const isNumeric = type === "integer" || type === "number";
  const form = type === "integer" ? integerPattern : numberPattern;
  const isNumber = form.test(value) && Number.isFinite(Number(value));
  const message = textProblem(value) ?? (isNumeric && !isNumber ? `must be ${type}` : undefined);
  if (message) throw invalidInput([{ pointer: pointerTo(parameter), message }]);
}

function pointerTo({ name, in: place }: ParameterObject): string {
  return `/${place}/${escapePointer(place === "header" ? name.toLowerCase() : name)}`;
}
