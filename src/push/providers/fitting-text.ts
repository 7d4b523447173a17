/** Fits a message into the payload limit of a provider, of about 4096 bytes. The history has the whole text. */
import type { NotificationContent } from "./provider.ts";

const ellipsis = "…";

/** Bytes of a text inside a JSON string. */
function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text)) - 2;
}

/**
 * The text, or as much of its beginning as fits, with an ellipsis; cut between graphemes, or else code points.
 * @param maxBytes limit of the text inside a JSON string, in UTF-8
 */
export function fittingText(text: string, maxBytes: number): string {
  if (jsonBytes(text) <= maxBytes) return text;
  let room = maxBytes - jsonBytes(ellipsis);
  if (room < 0) return "";
  let end = 0;
  for (const character of text) {
    room -= jsonBytes(character);
    if (room < 0) break;
    end += character.length;
  }
  const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text);
  return text.slice(0, graphemes.containing(end)?.index || end).trimEnd() + ellipsis;
}

/**
 * The content as JSON of at most `maxBytes`: if it does not fit, without its image, and then with a shorter message.
 * @param write returns the JSON of a content, in which its message occurs once
 */
export function fittingJson(
  content: NotificationContent,
  maxBytes: number,
  write: (content: NotificationContent) => string,
): string {
  const whole = write(content);
  const excess = Buffer.byteLength(whole) - maxBytes;
  if (excess <= 0) return whole;
  if (content.imageUrl !== undefined)
    return fittingJson({ ...content, imageUrl: undefined }, maxBytes, write);
  return write({ ...content, message: fittingText(content.message, jsonBytes(content.message) - excess) });
}
