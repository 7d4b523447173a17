/**
 * The syntax of a JWS, checked before its signature. Libraries accept what must be refused here: spaces,
 * padding and stray bits in base64url give one token several spellings, and a repeated member gives it
 * several meanings.
 */
import { repeatedMember } from "../base/json-members.ts";

/** The compact serialization, with nothing around it. Far longer text than any token or proof is refused undecoded. */
const compactPattern = /^([A-Za-z0-9_-]{1,1024})\.([A-Za-z0-9_-]{1,8192})\.([A-Za-z0-9_-]{1,1024})$/;

/** Whether the token has only one spelling and one meaning. Does not check the signature. */
export function isStrictJws(token: string): boolean {
  const [, header, payload, signature] = compactPattern.exec(token) ?? [];
  if (header === undefined || payload === undefined || signature === undefined) return false;
  // The unused bits of the last character must be zero. Those of the other parts are signed.
  if (Buffer.from(signature, "base64url").toString("base64url") !== signature) return false;
  const parameters = objectIn(header);
  // RFC 7797: an unencoded payload. Without `crit`, a library that does not implement `b64` ignores it.
  return parameters !== undefined && !Object.hasOwn(parameters, "b64") && objectIn(payload) !== undefined;
}

/** The JSON object of a part; undefined if it is none or repeats a member. */
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
