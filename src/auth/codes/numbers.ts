/** Phone numbers and addresses, as the limits on codes group them. */
import { isIPv6 } from "node:net";
import { parsePhoneNumberFromString } from "libphonenumber-js/max";

/**
 * Whether codes may go to a number: one of a mobile phone, in a region that is listed. By the number's region and not
 * its calling code, as +1 and +44 have islands where a message costs many times as much.
 * @param phone canonical
 * @param regions ISO 3166-1 alpha-2; undefined: all
 */
export function mayReceiveCodes(phone: string, regions: readonly string[] | undefined): boolean {
  const number = parsePhoneNumberFromString(phone);
  const type = number?.getType();
  if (type !== "MOBILE" && type !== "FIXED_LINE_OR_MOBILE") return false;
  return regions === undefined || (number?.country !== undefined && regions.includes(number.country));
}

/** What numbers share that are bought together: all digits but four. After a plus sign the log would mask them. */
export function prefixOf(phone: string): string {
  return phone.slice(1, -4);
}

/** The network that an address is in: the /24 of IPv4, the /64 of IPv6, which one subscriber has. */
export function networkOf(address: string): string {
  if (!isIPv6(address)) return address.split(".").slice(0, 3).join(".");
  // The parser's spelling has hexadecimal groups alone, and is the same for equal addresses.
  const [head = "", tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split("::");
  const groups = (part: string | undefined) => (part ? part.split(":") : []);
  const [first, last] = [groups(head), groups(tail)];
  const zeros = Array<string>(8 - first.length - last.length).fill("0");
  return [...first, ...zeros, ...last].slice(0, 4).join(":");
}
