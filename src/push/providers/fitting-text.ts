/**
 * Shortening a message to what a provider carries: 4000 bytes may be written, and no provider's limit of
 * about 4096 bytes has room for that beside the rest. The history has the whole text.
 */

const ellipsis = "…";

/** Bytes that a text has inside of a JSON string. */
function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}

/**
 * The text, or as much of its beginning as fits, with an ellipsis; what a reader sees as one character is
 * not cut through.
 * @param maxBytes that it may have inside of a JSON string, in UTF-8
 */
export function fittingText(text: string, maxBytes: number): string {
  let room = maxBytes - jsonBytes(text);
  if (room >= 0) return text;
  room = maxBytes - jsonBytes(ellipsis);
  let end = 0;
  for (const { segment, index } of new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text)) {
    room -= jsonBytes(segment);
    if (room < 0) break;
    end = index + segment.length;
  }
  return maxBytes < jsonBytes(ellipsis) ? "" : text.slice(0, end).trimEnd() + ellipsis;
}

/**
 * Content as JSON of at most so many bytes, its message shortened if need be.
 * @param write the JSON of the content with this message in it, once
 */
export function fittingJson(message: string, maxBytes: number, write: (message: string) => string): string {
  const whole = write(message);
  const excess = Buffer.byteLength(whole) - maxBytes;
  return excess <= 0 ? whole : write(fittingText(message, Math.max(0, jsonBytes(message) - excess)));
}
