/** What a client says of an authorization when it is granted: shown to its user, in no token and in no event. */
import { type InputError, invalidInput } from "../../platform/base/errors.ts";
import { jsonProblem } from "../../platform/openapi/json-problem.ts";

export interface Description {
  readonly deviceName: string | undefined;
  readonly metadata: Readonly<Record<string, unknown>> | undefined;
}

/** Members of metadata, and bytes of its text. */
const maxMetadata = { members: 16, bytes: 2_048 };

/** A name is shown between others: it may neither break the line nor turn the text around. */
const unshowable = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}]/u;

/**
 * Checks what the document cannot express. @param metadata a JSON object as text
 * @throws invalid_request
 */
export function readDescription(deviceName: string | undefined, metadata: string | undefined): Description {
  const errors: InputError[] = [];
  if (deviceName !== undefined && unshowable.test(deviceName)) {
    const message = "must have no control characters and no marks of the direction of text";
    errors.push({ pointer: "/body/device_name", message });
  }
  const read = metadata === undefined ? undefined : readMetadata(metadata);
  if (typeof read === "string") errors.push({ pointer: "/body/metadata", message: read });
  if (errors.length > 0) throw invalidInput(errors);
  return { deviceName, metadata: typeof read === "string" ? undefined : read };
}

/** @returns the object, or what is wrong with the text */
function readMetadata(text: string): Record<string, unknown> | string {
  if (Buffer.byteLength(text) > maxMetadata.bytes) return `is larger than ${maxMetadata.bytes} bytes`;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return "is not valid JSON";
  }
  if (!isObject(value)) return "must be a JSON object";
  if (Object.keys(value).length > maxMetadata.members) return `has more than ${maxMetadata.members} members`;
  return jsonProblem(text)?.message ?? value;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
