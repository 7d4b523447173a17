/** What JSON.parse does not tell: it keeps the last of two members of the same name and drops the others. */

const tokens = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}[\]]/g;

/**
 * The name of a member that an object has more than once (RFC 7493 section 2.3 forbids it). Two readers of
 * such a text can read two things.
 * @param text valid JSON
 */
export function repeatedMember(text: string): string | undefined {
  /** Names in the objects that are open here; undefined for an array. */
  const open: (Set<unknown> | undefined)[] = [];
  for (const [token, string, colon] of text.matchAll(tokens)) {
    if (token === "{") open.push(new Set());
    else if (token === "[") open.push(undefined);
    else if (token === "}" || token === "]") open.pop();
    else if (string !== undefined && colon !== undefined) {
      const name: unknown = JSON.parse(string);
      const names = open.at(-1);
      if (names?.has(name)) return String(name);
      names?.add(name);
    }
  }
  return undefined;
}
