import type { NotificationContent, PayloadSize } from "./provider.ts";

/** Names of images, and the URLs from which a provider, or the device, fetches them. */

/** Longest name once it is encoded, in bytes: payloads of about 4,000 bytes hold the title and the message as well. */
const maxEncodedBytes = 1000;

const segment = /^[^\p{Cc}]+$/u;
/** RFC 3986 section 3.1. */
const scheme = /^[a-z][a-z0-9+.-]*:/i;

/** What is wrong with an image's name, in words; undefined if nothing is. */
export function imageNameProblem(name: string): string | undefined {
  const parts = name.split("/");
  if (scheme.test(name)) return "begins with a scheme; it is a name below the deployment's own URL";
  if (name.includes("..") || parts.includes(".")) return "leads to another folder";
  if (!name.isWellFormed() || !parts.every((part) => segment.test(part))) {
    return "has an empty part, or control characters";
  }
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

const graphemesOf = (text: string) =>
  new Intl.Segmenter(undefined, { granularity: "grapheme" }).segment(text);

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
  return text.slice(0, graphemesOf(text).containing(end)?.index || end).trimEnd() + ellipsis;
}

/** Bytes of a grapheme that is cut if need be, as nobody has written it to be read. */
const endlessBytes = 100;

/** The text without so many bytes of its JSON, if they can be spared: one grapheme is left at least. */
function shortened(text: string, bytes: number): string {
  const fitting = fittingText(text, jsonBytes(text) - bytes);
  const first = graphemesOf(text).containing(0)?.segment ?? "";
  if (fitting.length > first.length || (fitting !== "" && jsonBytes(first) > endlessBytes)) return fitting;
  return jsonBytes(first + ellipsis) < jsonBytes(text) ? first + ellipsis : text;
}

/** A content as a payload has room for it. */
interface Fitted extends PayloadSize {
  readonly content: NotificationContent;
}

/**
 * The content as it fits: if all of it does not, without its image, and then with a shorter message.
 * @param bytesOf the bytes of a payload, as its provider counts them; each byte of the message counts as one at least
 */
export function fitted(
  content: NotificationContent,
  limit: number,
  bytesOf: (content: NotificationContent) => number,
): Fitted {
  const bytes = bytesOf(content);
  if (bytes <= limit) return { content, bytes, limit, isShortened: false, fits: true };
  const bare = { ...content, imageUrl: undefined };
  const excess = bytesOf(bare) - limit;
  const shorter = excess > 0 ? { ...bare, message: shortened(content.message, excess) } : bare;
  return { content: shorter, bytes, limit, isShortened: true, fits: bytesOf(shorter) <= limit };
}

/**
 * The content as JSON of at most `maxBytes`, as it fits.
 * @param write returns the JSON of a content, in which its message occurs once
 */
export function fittingJson(
  content: NotificationContent,
  maxBytes: number,
  write: (content: NotificationContent) => string,
): string {
  return write(fitted(content, maxBytes, (shown) => Buffer.byteLength(write(shown))).content);
}
