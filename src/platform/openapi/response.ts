/**
 * From a handler's result, or from an error, to a response in the format that the document states for the
 * operation: problems (RFC 9457), or the errors of OAuth (RFC 6749 section 5.2).
 */
import type { ServiceError } from "../base/errors.ts";
import { errorHeaders, problem, type ResponseParts } from "../base/problem.ts";
import type { RequestContext } from "../base/request-context.ts";
import { challengeOf } from "./challenge.ts";
import type { ContractOperation, ResponseObject } from "./document.ts";

/** A success as a handler returned it. */
export interface Success {
  readonly status: number;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Headers that the document declares with one fixed value (`const`): those need no code. */
function fixedHeaders(response: ResponseObject): Record<string, string> {
  const fixed: Record<string, string> = {};
  for (const [name, { schema }] of Object.entries(response.headers ?? {})) {
    if (schema && "const" in schema) fixed[name] = String(schema.const);
  }
  return fixed;
}

/** Makes the answers of one operation. */
export function answersOf(operation: ContractOperation) {
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
      // Where the document declares no 401, wrong credentials are answered 400.
      const declared = error.kind.status !== 401 || "401" in operation.responses;
      const status = declared ? error.kind.status : 400;
      const headers: Record<string, string> = { "X-Request-Id": context.requestId, ...fixed.get(status) };
      const asked = challenge?.header(status, authorization);
      if (asked !== undefined) headers["WWW-Authenticate"] = asked;
      return operation.errorFormat === "oauth"
        ? oauthError(status, headers, error)
        : problem(context, status, headers, error);
    },
  };
}

function oauthError(status: number, headers: Record<string, string>, error: ServiceError): ResponseParts {
  const all = { ...headers, ...errorHeaders(error), "Content-Type": "application/json" };
  return { status, headers: all, body: { error: error.kind.oauth, error_description: error.message } };
}

/** Headers that any answer may carry without being declared: HTTP's own, and those of CORS. */
const undeclared = /^(content-type|content-length|date|connection|keep-alive|vary|access-control-.*)$/i;

/**
 * Holds an answer against the document: status, headers, media type, body.
 * @returns what is wrong, in words; empty if nothing is
 */
export function contractViolations(operation: ContractOperation, answer: ResponseParts): string[] {
  const response = operation.responses[String(answer.status)];
  if (!response) return [`status ${answer.status} is not declared`];
  return [...headerViolations(response, answer), ...bodyViolations(operation, response, answer)];
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

function bodyViolations(
  operation: ContractOperation,
  { content }: ResponseObject,
  { status, headers, body }: ResponseParts,
): string[] {
  const mediaType = headers["Content-Type"];
  if (mediaType === undefined) return content ? ["the body is missing"] : [];
  if (!content?.[mediaType]) return [`media type ${mediaType} is not declared`];
  const validator = operation.responseValidator(status, mediaType);
  // The body as the caller parses it, not as the handler made it.
  const received: unknown = JSON.parse(JSON.stringify(body));
  if (!validator || validator(received)) return [];
  return (validator.errors ?? []).map(({ instancePath, message }) => `body${instancePath} ${message}`);
}

/** Whether the Accept header lets JSON through (RFC 9110 section 12.5.1). */
export function acceptsJson(accept: string | undefined): boolean {
  if (accept === undefined || accept === "*/*" || accept === "" || accept === "application/json") return true;
  let best = { specificity: -1, quality: 0 };
  for (const part of accept.split(",")) {
    const [range = "", ...parameters] = part.split(";").map((piece) => piece.trim().toLowerCase());
    const specificity = ["*/*", "application/*", "application/json"].indexOf(range);
    const weight = parameters.find((parameter) => parameter.startsWith("q="));
    const quality = weight ? Number(weight.slice(2)) : 1;
    if (specificity > best.specificity) best = { specificity, quality };
  }
  return best.quality > 0;
}
