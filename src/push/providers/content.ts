import type { NotificationContent } from "./provider.ts";

/** Names of images, and the URLs from which a provider, or the device, fetches them. */

/** Longest name once it is encoded, in bytes: payloads of about 4,000 bytes hold the title and the message as well. */
const maxEncodedBytes = 1000;

const segment = /^[^\p{Cc}]+$/u;
/** RFC 3986 section 3.1. */
const scheme = /^[a-z][a-z0-9+.-]*:/i;

/** What is wrong with an image's name, in words; undefined if nothing is. */
export function imageNameProblem(name: string): string | undefined {
  const parts = name.split("/");
  if (name.includes("..") || parts.includes(".")) return "leads to another folder";
  if (!name.isWellFormed() || !parts.every((part) => segment.test(part))) {
    return "has an empty part, or control characters";
  }
  if (scheme.test(name)) return "begins with a scheme; it is a name below the deployment's own URL";
  if (encoded(name).length > maxEncodedBytes) return `is longer than ${maxEncodedBytes} bytes in a URL`;
  return undefined;
}

/** The name as a relative path of a URL. */
function encoded(name: string): string {
  return name.split("/").map(encodeURIComponent).join("/");
}

/**
 * @param baseUrl PUSH_IMAGE_BASE_URL, without a trailing slash; undefined: images are not sent to providers
 * @param name of the image, such as `promo/summer.jpg`
 * @returns undefined also for a name that has a problem, as it could lead out of the base URL
 */
export function imageUrl(baseUrl: string | undefined, name: string | undefined): string | undefined {
  if (baseUrl === undefined || name === undefined || imageNameProblem(name) !== undefined) return undefined;
  return `${baseUrl}/${encoded(name)}`;
}

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
