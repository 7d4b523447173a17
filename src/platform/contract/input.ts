/**
 * From the bytes of a body to its value, and from the values of a request to those that its operation
 * declares. Bad input is refused whole, with a pointer to each place that is wrong.
 */
import type { ErrorObject, ValidateFunction } from "ajv";
import { ErrorKinds, type InputError, invalidInput, ServiceError } from "../errors.ts";
import { repeatedMember } from "../json-members.ts";
import type { ContractOperation } from "./document.ts";
import type { ParameterValues } from "./parameters.ts";
import { escapePointer, hidesInvalidUtf8, textProblem } from "./text.ts";

/** Bodies over this many bytes are refused. */
export const maxBodyBytes = 65_536;
/** So many levels of arrays and objects may stand in a member of a JSON body. */
const maxDepth = 32;
/** At most this many places are named in one answer. */
const maxErrors = 20;

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** The body's text; refuses one that is too large or not UTF-8, and stops reading as soon as it is too large. */
async function readText(request: Request): Promise<string> {
  const bytes = await readBytes(request).catch((cause) => {
    if (cause instanceof ServiceError) throw cause;
    throw new ServiceError(ErrorKinds.invalidRequest, "The body ended before it was complete.", { cause });
  });
  try {
    return utf8.decode(bytes);
  } catch {
    throw invalidInput([{ pointer: "/body", message: "is not UTF-8" }]);
  }
}

async function readBytes(request: Request): Promise<Uint8Array> {
  const declared = request.headers.get("content-length");
  const tooLarge = () =>
    new ServiceError(ErrorKinds.contentTooLarge, `The body is larger than ${maxBodyBytes} bytes.`);
  if (declared !== null) {
    // Node holds a body to its declared length, so this check is enough.
    if (Number(declared) > maxBodyBytes) throw tooLarge();
    return new Uint8Array(await request.arrayBuffer());
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body ?? []) {
    size += chunk.byteLength;
    if (size > maxBodyBytes) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** What is wrong with one value that stands by itself. */
function scalarProblem(value: unknown): string | undefined {
  if (typeof value === "string") return textProblem(value);
  if (typeof value === "number" && !Number.isFinite(value)) return "is a number out of range";
  return undefined;
}

/** Walks a parsed JSON value, without recursion, for what no schema can say. */
function jsonProblem(root: unknown): InputError | undefined {
  const pending = [{ value: root, pointer: "/body", depth: 0 }];
  for (let next = pending.pop(); next; next = pending.pop()) {
    const { value, pointer, depth } = next;
    const problem = scalarProblem(value);
    if (problem) return { pointer, message: problem };
    if (typeof value !== "object" || value === null) continue;
    if (depth > maxDepth) return { pointer: "/body", message: `is nested deeper than ${maxDepth} levels` };
    for (const [key, member] of Object.entries(value)) {
      const message = textProblem(key);
      if (message) return { pointer, message: `has a member name that ${message}` };
      pending.push({ value: member, pointer: `${pointer}/${escapePointer(key)}`, depth: depth + 1 });
    }
  }
  return undefined;
}

function parseJson(text: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const position = /position (\d+)/.exec(String(error))?.[1];
    const where = position ? ` (at character ${position})` : "";
    throw invalidInput([{ pointer: "/body", message: `is not valid JSON${where}` }]);
  }
  const problem = jsonProblem(value);
  if (problem) throw invalidInput([problem]);
  const repeated = repeatedMember(text);
  if (repeated !== undefined) {
    throw invalidInput([{ pointer: "/body", message: `gives ${JSON.stringify(repeated)} more than once` }]);
  }
  return value;
}

/** A form (`application/x-www-form-urlencoded`). Empty counts as absent, repeated is refused (RFC 6749 section 3.2). */
function parseForm(text: string): Record<string, string> {
  if (hidesInvalidUtf8(text)) throw invalidInput([{ pointer: "/body", message: "is not UTF-8" }]);
  const fields: Record<string, string> = Object.create(null);
  const seen = new Set<string>();
  for (const [name, value] of new URLSearchParams(text)) {
    const pointer = `/body/${escapePointer(name)}`;
    if (seen.has(name)) throw invalidInput([{ pointer, message: "is given more than once" }]);
    seen.add(name);
    const problem = textProblem(name) ?? textProblem(value);
    if (problem) throw invalidInput([{ pointer, message: problem }]);
    if (value !== "") fields[name] = value;
  }
  return fields;
}

/** Reads and parses the body. Undefined where the operation has none, or an optional one is absent. */
export async function readBody(request: Request, operation: ContractOperation): Promise<unknown> {
  if (!operation.bodyTypes) return undefined;
  const contentType = request.headers.get("content-type");
  const mediaType = contentType?.split(";", 1)[0]?.trim().toLowerCase();
  const isTaken = mediaType !== undefined && operation.bodyTypes.includes(mediaType);
  if (mediaType === undefined || isTaken) {
    // Whether there is a body, only reading tells: HTTP/2 declares nothing.
    const text = await readText(request);
    if (text === "" && !operation.bodyRequired) return undefined;
    if (text === "" && mediaType === undefined) {
      throw invalidInput([{ pointer: "/body", message: "is required" }]);
    }
    if (isTaken) return mediaType === "application/x-www-form-urlencoded" ? parseForm(text) : parseJson(text);
  }
  const expected = operation.bodyTypes.join(", ");
  throw new ServiceError(ErrorKinds.unsupportedMediaType, `The Content-Type must be one of: ${expected}.`);
}

/** The values of a request, in the shape that openapi-backend's validators check (and coerce). */
interface RequestValues extends ParameterValues {
  readonly requestBody?: unknown;
}

/** Throws `invalid_request` with a pointer to every place that is wrong. */
export function validate(validators: readonly ValidateFunction[], values: RequestValues): void {
  let errors: InputError[] | undefined;
  for (const validator of validators) {
    if (validator(values)) continue;
    errors ??= [];
    for (const error of validator.errors ?? []) {
      if (errors.length < maxErrors) errors.push(inputError(error));
    }
  }
  if (errors) throw invalidInput(errors);
}

function inputError({ instancePath, keyword, params, message = "is not valid" }: ErrorObject): InputError {
  const pointer = instancePath.replace(/^\/requestBody/, "/body");
  switch (keyword) {
    case "required":
      return { pointer: `${pointer}/${escapePointer(params["missingProperty"])}`, message: "is required" };
    case "additionalProperties":
      return {
        pointer: `${pointer}/${escapePointer(params["additionalProperty"])}`,
        message: "is not a member of this object",
      };
    case "minProperties":
      return { pointer, message: `must have at least ${params["limit"]} member` };
    case "const":
      return { pointer, message: `must be ${JSON.stringify(params["allowedValue"])}` };
    case "enum":
      return { pointer, message: `must be one of ${JSON.stringify(params["allowedValues"])}` };
    default:
      return { pointer, message };
  }
}
