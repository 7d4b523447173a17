/**
 * The one place of the auth service that reads phone numbers. Everything else compares and stores the canonical
 * form. The OTP verifier, which stands for a service of somebody else, reads them by itself.
 */
import { parsePhoneNumberFromString } from "libphonenumber-js/max";

/** E.164 with its plus sign: at most 15 digits. Some national numbering plans have longer numbers. */
const e164 = /^\+[1-9]\d{1,14}$/;

/** What may stand for the plus sign. A country code never begins with 0, so `00` can only be the call prefix. */
const withoutPlus = /^ ?(?:00 ?)?(?=[1-9])/;

/**
 * The canonical E.164 form of a phone number in international format; undefined if it cannot be one. The plus
 * sign may be absent, be written as `00` (ITU-T E.123), or have become a space: that of a query is a plus sign
 * that the caller did not encode.
 */
export function canonicalPhone(text: string): string | undefined {
  const international = text.replace(withoutPlus, "+");
  if (!international.startsWith("+")) return undefined;
  const phone = parsePhoneNumberFromString(international, { extract: false });
  return phone?.isPossible() && !phone.ext && e164.test(phone.number) ? phone.number : undefined;
}
