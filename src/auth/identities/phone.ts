/** Phone numbers, which the auth service compares and stores in their canonical form. */
import { parsePhoneNumberFromString } from "libphonenumber-js/max";

/** E.164 with its plus sign: at most 15 digits. Some national numbering plans have longer numbers. */
const e164 = /^\+[1-9]\d{1,14}$/;

/** What may stand for the plus sign. A country code never begins with 0, so `00` can only be the call prefix. */
const withoutPlus = /^(?:00 ?)?(?=[1-9])/;

/**
 * The canonical E.164 form of text in international format; undefined if it is not of that form. The plus sign may be
 * absent, `00` (ITU-T E.123) or a space; invisible marks and white space around the number are ignored.
 */
export function canonicalPhone(text: string): string | undefined {
  const international = folded(text).replace(withoutPlus, "+");
  if (!international.startsWith("+")) return undefined;
  const phone = parsePhoneNumberFromString(international, { extract: false });
  return phone && !phone.ext && e164.test(phone.number) ? phone.number : undefined;
}

/**
 * Whether today's numbering plans have such numbers. Plans change, so one that is stored may be of an older plan.
 * @param phone canonical
 */
export function isPossiblePhone(phone: string): boolean {
  return parsePhoneNumberFromString(phone)?.isPossible() === true;
}

/** Without marks of format, such as those of writing direction; with ASCII spaces, plus sign and digits. */
function folded(text: string): string {
  return text
    .replace(/\p{Cf}/gu, "")
    .replace(/\p{Zs}/gu, " ")
    .replace(/[\uff0b\uff10-\uff19]/g, (wide) => String.fromCharCode(wide.charCodeAt(0) - 0xfee0))
    .trim();
}
