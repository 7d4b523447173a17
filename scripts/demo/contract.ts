/**
 * Checks a response against an OpenAPI document, which is read from its file, as any consumer could do. The
 * operation must declare the status, the status must declare the media type, and the body must match the schema.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Ajv2020, type ErrorObject } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { withClosedSchemas } from "../../src/platform/openapi/closed.ts";
import { ROOT } from "../command.ts";
import { Mismatch } from "./mismatch.ts";

interface ResponseObject {
  readonly $ref?: string;
  readonly content?: Readonly<Record<string, object>>;
}
interface OperationObject {
  readonly operationId: string;
  readonly responses: Readonly<Record<string, ResponseObject>>;
}
interface DocumentObject {
  readonly paths: Readonly<Record<string, Readonly<Record<string, OperationObject | undefined>>>>;
  readonly components: { readonly responses: Readonly<Record<string, ResponseObject>> };
}

/** A request and its response. */
export interface Exchange {
  /** Upper case. */
  readonly method: string;
  /** As in the document, with parameters in braces. */
  readonly path: string;
  readonly status: number;
  /** Without its parameters; empty if there is none. */
  readonly mediaType: string;
  readonly body: string;
}

/** @returns the operation's id. @throws Mismatch with everything in which the body differs */
export type Contract = (exchange: Exchange) => string;

/** @param name of the document in openapi/ */
export function readContract(name: string): Contract {
  const document: DocumentObject = JSON.parse(
    readFileSync(join(ROOT, "gen/openapi", `${name}.json`), "utf8"),
  );
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  addFormats.default(ajv);
  ajv.addSchema(withClosedSchemas(document), name);

  /** The declared response and its JSON pointer in the document. */
  function declared(exchange: Exchange, { operationId, responses }: OperationObject) {
    const { method, path, status } = exchange;
    const response = responses[status];
    if (!response) {
      const statuses = Object.keys(responses).join(", ");
      throw new Mismatch(`one of the statuses that ${operationId} declares: ${statuses}`, `status ${status}`);
    }
    const keys = ["paths", path, method.toLowerCase(), "responses", String(status)];
    if (response.$ref === undefined) return { response, pointer: `#/${keys.map(escaped).join("/")}` };
    const shared = document.components.responses[response.$ref.replace("#/components/responses/", "")];
    return { response: shared ?? response, pointer: response.$ref };
  }

  return (exchange) => {
    const { method, path, status, mediaType, body } = exchange;
    const operation = document.paths[path]?.[method.toLowerCase()];
    if (!operation) throw new Error(`the contract of ${name} has no ${method} ${path}`);
    const { response, pointer } = declared(exchange, operation);
    const { operationId } = operation;
    if (!response.content) {
      if (body !== "") throw new Mismatch(`no body with ${operationId} ${status}`, body);
      return operationId;
    }
    if (!response.content[mediaType]) {
      const types = Object.keys(response.content).join(", ");
      throw new Mismatch(`media type ${types} for ${operationId} ${status}`, mediaType || "none");
    }
    const value = parsed(body, operationId, status);
    if (!ajv.validate({ $ref: `${name}${pointer}/content/${escaped(mediaType)}/schema` }, value)) {
      throw new Mismatch(
        `a body as the schema of ${operationId} ${status} says`,
        problemsOf(ajv.errors ?? []),
      );
    }
    return operationId;
  };
}

function parsed(body: string, operationId: string, status: number): unknown {
  try {
    return JSON.parse(body);
  } catch {
    throw new Mismatch(`JSON as the body of ${operationId} ${status}`, body.slice(0, 200));
  }
}

/** Problems in one message, at most: a body that matches none of several schemas has many. */
const maxProblems = 4;

/** The problems in words. Those of the schema with the fewest problems come first. */
function problemsOf(errors: readonly ErrorObject[]): string {
  const bySchema = Object.values(
    Object.groupBy(errors, ({ schemaPath }) => schemaPath.replace(inSchema, "")),
  );
  const closestFirst = bySchema
    .toSorted((a = [], b = []) => a.length - b.length)
    .flatMap((some = []) => some);
  const telling = closestFirst.filter(({ keyword }) => keyword !== "oneOf" || errors.length === 1);
  const all = [...new Set(telling.map(inWords))];
  const left = all.length - maxProblems;
  return [...all.slice(0, maxProblems), ...(left > 0 ? [`and ${left} more`] : [])].join("\n");
}

function inWords({ instancePath, message = "is not valid", params }: ErrorObject): string {
  const more = Object.values(params).map(String).join(", ");
  return `${instancePath || "the body"} ${message}${more === "" || message.endsWith(more) ? "" : ` (${more})`}`;
}

const inSchema = /\/(?:properties|required|additionalProperties|const|type)(?:\/.*)?$/;

/** One step of a JSON pointer in a URI fragment. */
function escaped(key: string): string {
  return encodeURIComponent(key.replaceAll("~", "~0").replaceAll("/", "~1"));
}
