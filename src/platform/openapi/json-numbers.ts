/** Numbers of JSON texts that a double cannot hold. JSON.parse rounds them without a word (RFC 8259 section 6). */

/** Stands for a number whose digits would be lost. */
export class ImpreciseNumber {}

/**
 * Every number of which digits can be lost has one of these: 16 digits in a row, with or without a point, or an
 * exponent.
 */
const suspicious = /\d(?:\.?\d){15}|\de/i;

/**
 * The value of a JSON text, as JSON.parse has it, but with an ImpreciseNumber for each number that would be read back
 * as another one.
 * @throws SyntaxError
 */
export function parsePrecisely(text: string): unknown {
  if (!suspicious.test(text)) return JSON.parse(text);
  return JSON.parse(text, (_name, value: unknown, context?: { readonly source?: string }) => {
    if (typeof value !== "number" || !Number.isFinite(value)) return value;
    return decimalOf(context?.source ?? "") === decimalOf(String(value)) ? value : new ImpreciseNumber();
  });
}

const decimal = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$/i;

/** One text for each decimal value: its digits without zeros at either end, and the exponent of the last one. */
function decimalOf(number: string): string {
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = decimal.exec(number) ?? [];
  const digits = (whole + fraction).replace(/^0+/, "");
  const significant = digits.replace(/0+$/, "");
  if (significant === "") return "0";
  return `${sign}${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}
