/** Makes the response of a handler's result, or of an error: problems (RFC 9457), or OAuth's (RFC 6749 section 5.2). */
import type { ValidateFunction } from "ajv";
import type { Logger } from "pino";
import { overloaded, type ServiceError } from "../base/errors.ts";
import { RequestContext } from "../base/request-context.ts";
import type { Sheddable } from "../door/door.ts";
import { errorHeaders, HttpResponse, problem, type ResponseParts } from "../door/responses.ts";
import { challengeOf } from "./challenge.ts";
import type { ContractOperation, ResponseObject } from "./document.ts";
import { headerReader } from "./handlers.ts";

export interface Success {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Headers that the document declares with one fixed value (`const`), which no handler has to set. */
function fixedHeaders(response: ResponseObject): Record<string, string> {
  const fixed: Record<string, string> = {};
  for (const [name, { schema }] of Object.entries(response.headers ?? {})) {
    if (schema && "const" in schema) fixed[name] = String(schema.const);
  }
  return fixed;
}

export function responsesOf(operation: ContractOperation) {
  const fixed = new Map(
    Object.entries(operation.responses).map(([status, response]) => [Number(status), fixedHeaders(response)]),
  );
  const challenge = challengeOf(operation);

  return {
    success(context: RequestContext, { status, body, headers }: Success): ResponseParts {
      const all: Record<string, string> = {
        "X-Request-Id": context.requestId,
        ...fixed.get(status),
        ...headers,
      };
      if (body !== undefined) all["Content-Type"] = "application/json";
      return { status, headers: all, body };
    },

    /** @param authorization the header that was sent */
    error(context: RequestContext, error: ServiceError, authorization?: string): ResponseParts {
      // If the document declares no 401, wrong credentials get a 400.
      const declared = error.kind.status !== 401 || "401" in operation.responses;
      const status = declared ? error.kind.status : 400;
      const headers: Record<string, string> = { "X-Request-Id": context.requestId, ...fixed.get(status) };
      // Also on that 400: who authenticates over HTTP is told by which scheme (RFC 6749 section 5.2).
      const authenticate = challenge?.header(error.kind.status, authorization);
      if (authenticate !== undefined) headers["WWW-Authenticate"] = authenticate;
      return operation.errorFormat === "oauth"
        ? oauthError(status, headers, error)
        : problem(context, status, headers, error);
    },
  };
}

/** A placeholder for the request's id in a response that is made once. */
const someId = "00000000-0000-0000-0000-000000000000";

/** Makes refusals. What does not depend on the request is computed once: a refusal has to cost little. */
export function refusalOf(operation: ContractOperation, logger: Logger): Sheddable["refuse"] {
  const error = responsesOf(operation).error(new RequestContext(logger, someId), overloaded);
  const { "X-Request-Id": _own, ...fixed } = error.headers;
  const headers = Object.entries(fixed).flat();
  const [before = "", after] = JSON.stringify(error.body).split(someId);
  return (request, response) => {
    const header = headerReader(request);
    const { requestId } = new RequestContext(logger, header("x-request-id"));
    const body = after === undefined ? before : before + JSON.stringify(requestId).slice(1, -1) + after;
    const length = String(Buffer.byteLength(body));
    const all = [...headers, "X-Request-Id", requestId, "Content-Length", length];
    // Both lines do the same. The two types have no signature in common.
    if (response instanceof HttpResponse) response.writeHead(error.status, all);
    else response.writeHead(error.status, all);
    response.end(body);
  };
}

function oauthError(status: number, headers: Record<string, string>, error: ServiceError): ResponseParts {
  // It may quote the request, and has few characters (RFC 6749 section 5.2).
  const text = error.message.toWellFormed().replaceAll('"', "'");
  const description = text.replaceAll(/[^ -[\]-~]/gu, encodeURIComponent);
  const body = { error: error.kind.oauth, error_description: description, ...error.members };
  return {
    status,
    headers: { ...headers, ...errorHeaders(error), "Content-Type": "application/json" },
    body,
  };
}

/** Headers that any response may have without a declaration: HTTP's own, and those of CORS. */
const undeclared = /^(content-type|content-length|date|connection|keep-alive|vary|access-control-.*)$/i;

/** The violations of the document in a response's status, headers, media type and body, in words. */
export function contractViolations(operation: ContractOperation, parts: ResponseParts): string[] {
  const response = operation.responses[String(parts.status)];
  if (!response) return [`status ${parts.status} is not declared`];
  return [...headerViolations(response, parts), ...bodyViolations(operation, response, parts)];
}

function headerViolations(response: ResponseObject, { headers }: ResponseParts): string[] {
  const violations: string[] = [];
  const sent = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  const declared = new Set<string>();
  for (const [name, { required }] of Object.entries(response.headers ?? {})) {
    declared.add(name.toLowerCase());
    if (required && !sent.has(name.toLowerCase())) violations.push(`header ${name} is missing`);
  }
  for (const name of sent) {
    if (!declared.has(name) && !undeclared.test(name)) violations.push(`header ${name} is not declared`);
  }
  return violations;
}

/** The validators of responses, by their status and media type. */
const compiled = new WeakMap<ContractOperation, Map<string, ValidateFunction | undefined>>();

function bodyViolations(
  operation: ContractOperation,
  { content }: ResponseObject,
  { status, headers, body }: ResponseParts,
): string[] {
  const mediaType = headers["Content-Type"];
  if (mediaType === undefined) return content ? ["the body is missing"] : [];
  if (!content?.[mediaType]) return [`media type ${mediaType} is not declared`];
  const validators = compiled.get(operation) ?? new Map<string, ValidateFunction | undefined>();
  compiled.set(operation, validators);
  const key = `${status} ${mediaType}`;
  if (!validators.has(key)) validators.set(key, operation.compileResponse(status, mediaType));
  const validator = validators.get(key);
  // The body as the caller parses it, not as the handler made it.
  const received: unknown = JSON.parse(JSON.stringify(body));
  if (!validator || validator(received)) return [];
  return (validator.errors ?? []).map(({ instancePath, message, params }) => {
    const member = params["unevaluatedProperty"];
    return member === undefined
      ? `body${instancePath} ${message}`
      : `body${instancePath} has an undeclared member ${member}`;
  });
}

/** The media ranges, beside those of `application/json`, by which an Accept header may ask for the operation's JSON. */
export function jsonNames({ responses }: ContractOperation): string[] {
  const names = Object.values(responses).flatMap(({ content = {}, "x-also-named": more = [] }) => [
    ...Object.keys(content).filter((name) => /[/+]json$/.test(name)),
    ...more,
  ]);
  return names.some((name) => name.endsWith("+json")) ? [...names, "application/*+json"] : names;
}

/** Whether the Accept header permits JSON (RFC 9110 section 12.5.1). @param names as `jsonNames` has them */
export function acceptsJson(accept: string | undefined, names: readonly string[]): boolean {
  if (accept === undefined || accept === "*/*" || accept === "" || accept === "application/json") return true;
  let best = { specificity: -1, quality: 0 };
  for (const part of accept.split(",")) {
    const [range = "", ...parameters] = part.split(";").map((piece) => piece.trim().toLowerCase());
    const specificity = ["*/*", "application/*", "application/json"].indexOf(range);
    const weight = parameters.find((parameter) => parameter.startsWith("q="));
    const quality = weight ? Number(weight.slice(2)) : 1;
    if (quality > 0 && names.includes(range)) return true;
    if (specificity > best.specificity) best = { specificity, quality };
  }
  return best.quality > 0;
}
