/** Where secrets and tokens may be sent. */

const secure = /^(?:https:\/\/|http:\/\/(?:localhost|127(?:\.\d+){3}|\[::1\])(?::\d+)?(?:\/|$))/i;

/**
 * By the text alone: React Native before 0.80 has no `URL` that can be read.
 * @returns it without a slash at its end
 * @throws TypeError where it is neither https nor a loopback address
 */
export function secureUrl(url: string): string {
  if (secure.test(url)) return url.replace(/\/+$/, "");
  throw new TypeError(`${url} is neither https nor a loopback address: nothing secret is sent there`);
}
