/** The URL from which a provider, or the device, fetches a notification's image. */

const segment = /^(?!\.{1,2}$)[\w.-]+$/;

/**
 * @param baseUrl PUSH_IMAGE_BASE_URL, without a trailing slash; undefined: images are not sent to providers
 * @param name of the image, such as `promo/summer.jpg`
 * @returns undefined also for a name that could lead out of the base URL: with `..`, an empty segment, or characters
 *   that have a meaning in a URL
 */
export function imageUrl(baseUrl: string | undefined, name: string | undefined): string | undefined {
  if (baseUrl === undefined || name === undefined) return undefined;
  return name.split("/").every((part) => segment.test(part)) ? `${baseUrl}/${name}` : undefined;
}
