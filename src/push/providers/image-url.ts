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
