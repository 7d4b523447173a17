/**
 * Offsets from UTC: minutes inside. On the wire an integer from -12 to 14 means hours, any other one minutes,
 * which are a multiple of 15 from -720 to 840. No multiple of 15 but 0 lies between -12 and 14, so minutes
 * read the same way on the wire.
 */

const hours = { least: -12, greatest: 14 };
const minutes = { least: -720, greatest: 840, step: 15 };

/** What an integer on the wire means, in minutes; undefined: nothing. */
export function minutesOf(offset: number): number | undefined {
  if (!Number.isInteger(offset)) return undefined;
  // Adding 0 turns -0 into 0.
  if (offset >= hours.least && offset <= hours.greatest) return offset * 60 + 0;
  return isOffset(offset) ? offset : undefined;
}

function isOffset(value: number): boolean {
  return value >= minutes.least && value <= minutes.greatest && value % minutes.step === 0;
}

/** Without leading zeros, which could be meant as hours and minutes. */
const integer = /^[+-]?(?:0|[1-9]\d{0,2})$/;
/** ISO 8601: hours with two digits, and perhaps minutes. */
const clockTime = /^([+-])(\d{2})(?::?([0-5]\d))?$/;

/** The header's text as minutes: an integer as above, `Z`, `+03:00`, `+0300` or `+03`; undefined: none of these. */
export function readUtcOffset(text: string): number | undefined {
  if (text === "Z") return 0;
  if (integer.test(text)) return minutesOf(Number(text));
  const [, sign, wholeHours, rest = "0"] = clockTime.exec(text) ?? [];
  if (wholeHours === undefined) return undefined;
  const size = Number(wholeHours) * 60 + Number(rest);
  const value = sign === "-" ? 0 - size : size;
  return isOffset(value) ? value : undefined;
}
