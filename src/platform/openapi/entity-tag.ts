/** Entity tags (RFC 9110 section 8.8.3): they tell whether the caller already has the current representation. */
import { createHash } from "node:crypto";

/** The tag of a representation, quoted; changes when its bytes change. */
export function entityTag(bytes: string | Uint8Array): string {
  return `"${createHash("sha256").update(bytes).digest("base64url").slice(0, 16)}"`;
}

/** If-None-Match (RFC 9110 section 13.1.2): a list of tags, or `*`; compared weakly. */
export function matchesEntityTag(ifNoneMatch: string | undefined, tag: string): boolean {
  if (ifNoneMatch === undefined) return false;
  const tags = ifNoneMatch.split(",").map((each) => each.trim().replace(/^W\//, ""));
  return tags.includes("*") || tags.includes(tag);
}
