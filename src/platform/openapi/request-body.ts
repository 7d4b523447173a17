/** Reads and parses the body of a request. */
import { isUtf8 } from "node:buffer";
import type { Readable } from "node:stream";
import { ErrorKinds, invalidInput, ServiceError } from "../base/errors.ts";
import type { ContractOperation } from "./document.ts";
import type { HeaderReader } from "./handlers.ts";
import { jsonProblem } from "./json-problem.ts";
import { escapePointer, hidesInvalidUtf8, textProblem } from "./parameters.ts";

const formType = "application/x-www-form-urlencoded";
/** Parameters of a form, at most. Those that no operation knows are ignored, but each costs time. */
const maxParameters = 100;

function textOf(bytes: Buffer): string {
  if (!isUtf8(bytes)) throw invalidInput([{ pointer: "/body", message: "is not UTF-8" }]);
  return bytes.toString("utf8");
}

function tooLarge(limit: number): ServiceError {
  return new ServiceError(ErrorKinds.contentTooLarge, `The body is larger than ${limit} bytes.`);
}

/** The body if it has arrived completely, as small ones have. Awaiting it would cost several times as much. */
function arrivedBytes(stream: Readable, declaredLength: string | undefined): Buffer | undefined {
  const size = stream.readableLength;
  if (size === 0 || String(size) !== declaredLength) return undefined;
  const bytes: unknown = stream.read();
  // So that the stream ends, which it may not have done yet.
  stream.resume();
  return bytes instanceof Buffer ? bytes : undefined;
}

/** Reads the body from Node's own stream. Rejects as soon as the body is too large, and if it ends early. */
function readBytes(stream: Readable, limit: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    let isOver = false;
    stream.on("data", (chunk: Buffer) => {
      size += chunk.length;
      // The rest of a body that is too large is discarded; its connection is closed after the response.
      if (size <= limit) chunks.push(chunk);
      else if (!isOver) endWith(tooLarge(limit));
    });
    stream.on("end", () => {
      if (isOver) return;
      isOver = true;
      resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks));
    });
    stream.on("error", endEarly);
    // This event follows every body; the error is created only if the body is incomplete.
    stream.on("close", () => endEarly(undefined));

    function endWith(error: ServiceError): void {
      isOver = true;
      reject(error);
    }
    function endEarly(cause: unknown): void {
      if (isOver) return;
      endWith(
        new ServiceError(ErrorKinds.invalidRequest, "The body ended before it was complete.", { cause }),
      );
    }
  });
}

/** @param check what else is refused, before the text is looked through */
function parseJson(text: string, check?: (value: unknown) => void): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const position = /position (\d+)/.exec(String(error))?.[1];
    const where = position ? ` (at character ${position})` : "";
    throw invalidInput([{ pointer: "/body", message: `is not valid JSON${where}` }]);
  }
  check?.(value);
  const problem = jsonProblem(text);
  if (problem) throw invalidInput([problem]);
  return value;
}

function tooManyParameters(): ServiceError {
  return invalidInput([{ pointer: "/body", message: `has more than ${maxParameters} parameters` }]);
}

/** Parses a form. Empty fields count as absent, repeated ones are refused (RFC 6749 section 3.2). */
function parseForm(text: string): Record<string, string> {
  const fields: Record<string, string> = {};
  const pairs = text.split("&", maxParameters + 1);
  if (pairs.length > maxParameters) throw tooManyParameters();
  for (const pair of pairs) if (pair !== "") addField(fields, pair);
  for (const name in fields) if (fields[name] === "") delete fields[name];
  return fields;
}

/** Parses a JSON object in the place of a form: an empty member and null count as absent. */
function parseJsonForm(text: string): unknown {
  const value = parseJson(text, (parsed) => {
    if (isMembers(parsed) && Object.keys(parsed).length > maxParameters) throw tooManyParameters();
  });
  if (!isMembers(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([, member]) => member !== "" && member !== null));
}

function isMembers(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function addField(fields: Record<string, string>, pair: string): void {
  const equals = pair.indexOf("=");
  const name = decodeFormText(equals === -1 ? pair : pair.slice(0, equals));
  const value = equals === -1 ? "" : decodeFormText(pair.slice(equals + 1));
  const isRepeated = Object.hasOwn(fields, name);
  const problem = isRepeated ? "is given more than once" : (textProblem(name) ?? textProblem(value));
  if (problem) throw invalidInput([{ pointer: `/body/${escapePointer(name)}`, message: problem }]);
  // An assignment to `__proto__` would not create a field.
  if (name === "__proto__")
    Object.defineProperty(fields, name, { value, enumerable: true, configurable: true });
  else fields[name] = value;
}

function decodeFormText(text: string): string {
  if (!text.includes("%")) return text.includes("+") ? text.replaceAll("+", " ") : text;
  // URLSearchParams replaces bytes that are not UTF-8, so that two different texts become equal.
  if (hidesInvalidUtf8(text)) throw invalidInput([{ pointer: "/body", message: "is not UTF-8" }]);
  return new URLSearchParams(`=${text}`).get("") ?? "";
}

/** The parsed body; undefined if the operation has none, or if an optional one is absent. */
export async function readBody(
  header: HeaderReader,
  stream: Readable,
  operation: ContractOperation,
): Promise<unknown> {
  if (!operation.bodyTypes) return undefined;
  const contentType = header("content-type");
  const mediaType = mediaTypeOf(contentType);
  if (mediaType !== undefined && !operation.bodyTypes.includes(mediaType)) {
    throw unsupportedMediaType(operation.bodyTypes);
  }
  refuseEncodings(contentType, header("content-encoding"));
  // Only reading shows whether there is a body: HTTP/2 need not declare it.
  const declaredLength = header("content-length");
  const { bodyLimit } = operation;
  if (Number(declaredLength) > bodyLimit) throw tooLarge(bodyLimit);
  // Node delivers bytes that arrived with the headers once the request event's listeners have returned.
  await undefined;
  const bytes = arrivedBytes(stream, declaredLength) ?? (await readBytes(stream, bodyLimit));
  return parseBody(bytes, mediaType, operation);
}

function mediaTypeOf(contentType: string | undefined): string | undefined {
  if (contentType === undefined || contentType === formType) return contentType;
  return contentType.split(";", 1)[0]?.trim().toLowerCase();
}

/** The character sets whose bytes are UTF-8. */
const utf8Names = /^"?(utf-?8|us-ascii)"?$/i;

/** @throws unsupported_media_type (RFC 9110 section 15.5.16) for a body that is compressed, or not in UTF-8 */
function refuseEncodings(contentType: string | undefined, contentEncoding: string | undefined): void {
  if (contentEncoding !== undefined && !/^(identity)?$/i.test(contentEncoding.trim())) {
    const detail = "The body must not be compressed: send it without Content-Encoding.";
    throw new ServiceError(ErrorKinds.unsupportedMediaType, detail);
  }
  if (!contentType?.includes(";")) return;
  const charset = /;\s*charset\s*=\s*([^;]*)/i.exec(contentType)?.[1]?.trim();
  if (charset !== undefined && !utf8Names.test(charset)) {
    throw new ServiceError(ErrorKinds.unsupportedMediaType, "The charset of the Content-Type must be utf-8.");
  }
}

/** @param mediaType one that the operation accepts; undefined if the request has no Content-Type */
function parseBody(
  bytes: Buffer,
  mediaType: string | undefined,
  { bodyTypes = [], bodyRequired }: ContractOperation,
): unknown {
  const text = textOf(bytes);
  if (text === "" && !bodyRequired) return undefined;
  if (mediaType === formType) return parseForm(text);
  if (mediaType !== undefined) return bodyTypes.includes(formType) ? parseJsonForm(text) : parseJson(text);
  if (text === "") throw invalidInput([{ pointer: "/body", message: "is required" }]);
  throw unsupportedMediaType(bodyTypes);
}

function unsupportedMediaType(bodyTypes: readonly string[]): ServiceError {
  const detail = `The Content-Type must be one of: ${bodyTypes.join(", ")}.`;
  return new ServiceError(ErrorKinds.unsupportedMediaType, detail);
}
