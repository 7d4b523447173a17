/** Finds repeated members of JSON objects. JSON.parse hides them: it keeps only the last one of a name. */

const tokens = /("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}[\]]/g;

/** The name of a member that an object of valid JSON repeats (RFC 7493 section 2.3); undefined if none does. */
export function repeatedMember(text: string): string | undefined {
  /** The member names of each enclosing object; undefined for an array. */
  const open: (Set<string> | undefined)[] = [];
  for (const [token, string, colon] of text.matchAll(tokens)) {
    if (token === "{") open.push(new Set());
    else if (token === "[") open.push(undefined);
    else if (token === "}" || token === "]") open.pop();
    else if (string !== undefined && colon !== undefined) {
      const name = nameOf(string);
      const names = open.at(-1);
      if (names?.has(name)) return name;
      names?.add(name);
    }
  }
  return undefined;
}

/** @param string in its quotes. Parsing costs several times as much, and few have something to parse. */
function nameOf(string: string): string {
  return string.includes("\\") ? String(JSON.parse(string)) : string.slice(1, -1);
}
