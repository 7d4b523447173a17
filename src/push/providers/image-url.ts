/** Where a provider, and then the device, fetches a notification's image. */

const segment = /^(?!\.{1,2}$)[\w.-]+$/;

/**
 * @param baseUrl PUSH_IMAGE_BASE_URL, without a trailing slash; undefined: images are not sent to providers
 * @param name of the image, such as `promo/summer.jpg`
 * @returns undefined also for a name that could lead out of the base: with `..`, an empty segment, or what a
 *   URL would read as something else
 */
export function imageUrl(baseUrl: string | undefined, name: string | undefined): string | undefined {
  if (baseUrl === undefined || name === undefined) return undefined;
  return name.split("/").every((part) => segment.test(part)) ? `${baseUrl}/${name}` : undefined;
}
