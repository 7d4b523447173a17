import { parsePhoneNumberFromString } from "libphonenumber-js/max";
import { invalidInput } from "../../platform/base/errors.ts";

/**
 * The canonical E.164 form of a phone number in international format, also without the plus sign, with `00`, or
 * with the space that a plus sign becomes if it is not encoded in a query; and as it is pasted.
 * @param pointer JSON pointer to the number in the request
 * @throws invalid_request if it cannot be a phone number
 */
export function requirePhone(text: string, pointer: string): string {
  const trimmed = text.replace(/\p{Cf}/gu, "").trim();
  const international = trimmed.replace(/^(?:\uff0b|(?:00 ?)?(?=[1-9]))/, "+");
  const phone = international.startsWith("+")
    ? parsePhoneNumberFromString(international, { extract: false })
    : undefined;
  if (phone?.isPossible() && !phone.ext) return phone.number;
  throw invalidInput([{ pointer, message: "is not a possible phone number in international format" }]);
}
