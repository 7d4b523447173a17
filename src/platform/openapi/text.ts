/** The problem of a text that a text column or a JSON column cannot store unchanged; undefined if there is none. */
export function textProblem(text: string): string | undefined {
  if (text.includes("\0")) return "contains a NUL character";
  if (!text.isWellFormed()) return "contains half of a surrogate pair";
  return undefined;
}

/** Whether percent-encoded bytes are not UTF-8, so that URLSearchParams would make different texts equal. */
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
