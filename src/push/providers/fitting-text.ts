/**
 * Shortens a message to the payload limit of a provider. A message may have 4000 bytes, and with the rest of the
 * payload that exceeds the providers' limits of about 4096 bytes. The history has the whole text.
 */

const ellipsis = "…";

/** Bytes of a text inside a JSON string. */
function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}

/**
 * The text, or as much of its beginning as fits, with an ellipsis. It is never cut inside a grapheme, which a reader
 * sees as one character.
 * @param maxBytes limit of the text inside a JSON string, in UTF-8
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
 * The content as JSON of at most `maxBytes`; its message is shortened if necessary.
 * @param write returns the JSON of the content with the given message, which must occur in it once
 */
export function fittingJson(message: string, maxBytes: number, write: (message: string) => string): string {
  const whole = write(message);
  const excess = Buffer.byteLength(whole) - maxBytes;
  return excess <= 0 ? whole : write(fittingText(message, Math.max(0, jsonBytes(message) - excess)));
}
