/** Numbers of JSON texts that a double cannot hold. JSON.parse rounds them without a word (RFC 8259 section 6). */

/** Significant digits that every normal double keeps. */
const keptDigits = 15;
const leastNormal = 2.2250738585072014e-308;

/** Whether a number would be read back as another one. @param number as JSON has it, and not out of range */
export function losesDigits(number: string): boolean {
  const written = decimalOf(number);
  if (written.digits === "") return false;
  const value = Number(number);
  if (written.digits.length <= keptDigits && Math.abs(value) >= leastNormal) return false;
  const kept = decimalOf(String(value));
  return written.digits !== kept.digits || written.exponent !== kept.exponent;
}

/** A decimal number without its sign: the digits between the zeros at either end, and the exponent of the last one. */
interface Decimal {
  readonly digits: string;
  readonly exponent: number;
}

const zero: Decimal = { digits: "", exponent: 0 };
const [codeOfPoint, codeOf0, codeOf9, codeOfE] = [0x2e, 0x30, 0x39, 0x65];

/** By character codes: a regular expression takes several times as long, and a body may have thousands of numbers. */
function decimalOf(number: string): Decimal {
  let [end, point, first, last] = [0, -1, -1, -1];
  for (; end < number.length; end += 1) {
    const code = number.charCodeAt(end);
    if ((code | 0x20) === codeOfE) break;
    if (code === codeOfPoint) point = end;
    else if (code > codeOf0 && code <= codeOf9) {
      if (first === -1) first = end;
      last = end;
    }
  }
  if (first === -1) return zero;
  const hasPointWithin = first < point && point < last;
  const digits = hasPointWithin
    ? number.slice(first, point) + number.slice(point + 1, last + 1)
    : number.slice(first, last + 1);
  // Places after the last digit up to the point; negative behind the point, which itself takes a place.
  const behind = point === -1 ? end - last - 1 : point < last ? point - last : point - last - 1;
  return { digits, exponent: behind + (end === number.length ? 0 : Number(number.slice(end + 1))) };
}
