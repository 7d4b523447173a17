/**
 * The form of a JWS, checked before its signature. Libraries forgive what must not be forgiven here: spaces,
 * padding and stray bits in base64url give one token many spellings, and a member that is given twice gives
 * it many readings.
 */
import { repeatedMember } from "../base/json-members.ts";

/** Compact, with nothing around it; far longer than any token or proof is refused unread. */
const compactPattern = /^([A-Za-z0-9_-]{1,1024})\.([A-Za-z0-9_-]{1,8192})\.([A-Za-z0-9_-]{1,1024})$/;

/** Whether the token can only be spelled and read in one way. Says nothing of its signature. */
export function isStrictJws(token: string): boolean {
  const [, header, payload, signature] = compactPattern.exec(token) ?? [];
  if (header === undefined || payload === undefined || signature === undefined) return false;
  // The unused bits of the last character must be zero. Those of the other parts are signed.
  if (Buffer.from(signature, "base64url").toString("base64url") !== signature) return false;
  const parameters = objectIn(header);
  // RFC 7797: a payload that is not encoded. Without `crit` it is ignored by whoever does not know it.
  return parameters !== undefined && !Object.hasOwn(parameters, "b64") && objectIn(payload) !== undefined;
}

/** The JSON object of a part, if it can only be read in one way. */
function objectIn(part: string): object | undefined {
  const text = Buffer.from(part, "base64url").toString("utf8");
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject && repeatedMember(text) === undefined ? value : undefined;
  } catch {
    return undefined;
  }
}
