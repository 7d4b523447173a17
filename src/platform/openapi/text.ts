/** What is true of every text that comes in, wherever it stands in the request. */

/** What a text column and a JSON column cannot hold, or could not give back as it was. */
export function textProblem(text: string): string | undefined {
  if (text.includes("\0")) return "contains a NUL character";
  if (!text.isWellFormed()) return "contains half of a surrogate pair";
  return undefined;
}

/**
 * Whether percent-encoded bytes are not UTF-8. URLSearchParams replaces those, and would make two texts one; a
 * percent sign that encodes nothing is let through, as it does.
 */
export function hidesInvalidUtf8(encoded: string): boolean {
  try {
    decodeURIComponent(encoded);
    return false;
  } catch {
    const runs = encoded.match(/(?:%[0-9a-f]{2})+/gi) ?? [];
    return runs.some((run) => !isDecodable(run));
  }
}

function isDecodable(run: string): boolean {
  try {
    decodeURIComponent(run);
    return true;
  } catch {
    return false;
  }
}

/** One step of a JSON pointer (RFC 6901). */
export function escapePointer(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}
