import { parsePhoneNumberFromString } from "libphonenumber-js/max";

/** E.164 with its plus sign: at most 15 digits. Some national numbering plans have longer numbers. */
const e164 = /^\+[1-9]\d{1,14}$/;

/**
 * The canonical E.164 form of a phone number in international format; undefined if it cannot be one. A
 * leading space is read as the plus sign that a caller forgot to encode in a query.
 */
export function canonicalPhone(text: string): string | undefined {
  const international = text.replace(/^ (?=\d)/, "+");
  if (!international.startsWith("+")) return undefined;
  const phone = parsePhoneNumberFromString(international, { extract: false });
  return phone?.isPossible() && !phone.ext && e164.test(phone.number) ? phone.number : undefined;
}
