/**
 * Offsets from UTC, in minutes. On the wire an integer from -12 to 14 means hours, any other minutes: a multiple of 15
 * from -720 to 840.
 */

const hours = { least: -12, greatest: 14 };
const minutes = { least: -720, greatest: 840, step: 15 };

/** An integer on the wire as minutes; undefined if it is not an offset. */
export function minutesOf(offset: number): number | undefined {
  if (!Number.isInteger(offset)) return undefined;
  // Adding 0 turns -0 into 0.
  if (offset >= hours.least && offset <= hours.greatest) return offset * 60 + 0;
  return isOffset(offset) ? offset : undefined;
}

function isOffset(value: number): boolean {
  return value >= minutes.least && value <= minutes.greatest && value % minutes.step === 0;
}

/** An integer without leading zeros: `0330` could mean hours and minutes. */
const integer = /^[+-]?(?:0|[1-9]\d{0,2})$/;
/** The patterns of hours and minutes. Each has a sign, perhaps after `UTC` or `GMT`, then hours, then minutes. */
const clockTimes = [
  // The colon alone distinguishes `03:00` from an integer, so a sign is not needed: +03:00, +3:00, 03:00, GMT+03:00.
  /^((?:UTC|GMT)?[+-])?(\d{1,2}):([0-5]\d)$/,
  // ISO 8601: +0300, +03, UTC+0300.
  /^((?:UTC|GMT)?[+-])(\d{2})([0-5]\d)?$/,
  // UTC+3
  /^((?:UTC|GMT)[+-])(\d)$/,
];

/**
 * The text of the header `barrier-user-utc-offset` as minutes: an integer as above, `Z`, `UTC0`, `GMT0`, or hours and
 * minutes; undefined if it is none of these.
 */
export function readUtcOffset(text: string): number | undefined {
  if (/^(?:Z|(?:UTC|GMT)0)$/.test(text)) return 0;
  if (integer.test(text)) return minutesOf(Number(text));
  for (const clockTime of clockTimes) {
    const [, sign = "", wholeHours, rest = "0"] = clockTime.exec(text) ?? [];
    if (wholeHours === undefined) continue;
    const size = Number(wholeHours) * 60 + Number(rest);
    const value = sign.endsWith("-") ? 0 - size : size;
    return isOffset(value) ? value : undefined;
  }
  return undefined;
}
