/** Offsets from UTC: which spellings there are, what each means in minutes, and that nothing else is taken. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { zoneTime } from "../../../src/push/devices/time-zone.ts";
import { minutesOf, readUtcOffset } from "../../../src/push/devices/utc-offset.ts";
import { readSchemas } from "../../contract/schema-arbitraries.ts";
import { shortTexts } from "../../support/short-texts.ts";

const wholeHours = Array.from({ length: 27 }, (_, index) => index - 12);
const quarters = Array.from({ length: (840 + 720) / 15 + 1 }, (_, index) => index * 15 - 720);

describe("an integer on the wire", () => {
  test.each(wholeHours)("%i means hours", (hours) => {
    expect(minutesOf(hours)).toBe(hours * 60 + 0);
    expect(readUtcOffset(`${hours}`)).toBe(hours * 60 + 0);
  });

  test("every multiple of 15 from -720 to 840 but those of the hours means minutes, and nothing else does", () => {
    const minutes = quarters.filter((value) => value < -12 || value > 14);
    for (let value = -2_000; value <= 2_000; value += 1) {
      const expected = minutes.includes(value)
        ? value
        : wholeHours.includes(value)
          ? value * 60 + 0
          : undefined;
      expect(minutesOf(value), String(value)).toBe(expected);
      // Four digits are hours and minutes in the header.
      if (Math.abs(value) < 1_000) expect(readUtcOffset(String(value)), String(value)).toBe(expected);
    }
    expect(minutesOf(15)).toBe(15);
    expect(minutesOf(330)).toBe(330);
    expect(minutesOf(-720)).toBe(-720);
    expect(minutesOf(840)).toBe(840);
    expect(minutesOf(-735)).toBeUndefined();
    expect(minutesOf(855)).toBeUndefined();
  });

  test.each([
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
    0.5,
    3.000001,
    1e308,
    -1e21,
    2 ** 53,
  ])("%d means nothing", (value) => expect(minutesOf(value)).toBeUndefined());

  test("a zero is never negative", () => {
    for (const zero of [
      minutesOf(-0),
      readUtcOffset("-0"),
      readUtcOffset("-00:00"),
      readUtcOffset("-0000"),
    ]) {
      expect(Object.is(zero, 0)).toBe(true);
    }
  });
});

describe("the header", () => {
  test.each([
    ["Z", 0],
    ["0", 0],
    ["+0", 0],
    ["+00:00", 0],
    ["-00:00", 0],
    ["+3", 180],
    ["+03", 180],
    ["-03", -180],
    ["+03:00", 180],
    ["+0300", 180],
    ["+0530", 330],
    ["+05:45", 345],
    ["-03:30", -210],
    ["-0330", -210],
    ["+14", 840],
    ["+14:00", 840],
    ["+1400", 840],
    ["-12", -720],
    ["-12:00", -720],
    ["-1200", -720],
    ["15", 15],
    ["+15", 15],
    ["-15", -15],
    ["330", 330],
    ["+330", 330],
    ["840", 840],
    ["-720", -720],
    ["+3:00", 180],
    ["03:00", 180],
    ["3:00", 180],
    ["14:00", 840],
    ["-9:30", -570],
    ["UTC+3", 180],
    ["UTC-3", -180],
    ["UTC+03", 180],
    ["UTC+14", 840],
    ["UTC+5:30", 330],
    ["GMT+03:00", 180],
    ["GMT-0930", -570],
    ["GMT+0", 0],
    ["GMT-0", 0],
    ["GMT0", 0],
    ["UTC0", 0],
  ])("%j is %i minutes", (text, minutes) => expect(readUtcOffset(text)).toBe(minutes));

  test.each([
    "",
    " ",
    "z",
    "UTC",
    "GMT",
    "Z+03:00",
    "+Z",
    "NaN",
    "Infinity",
    "-Infinity",
    "undefined",
    "null",
    "true",
    "1e1",
    "1E1",
    "0x3",
    "0b1",
    "0o3",
    "3.0",
    "3.",
    ".5",
    "3,0",
    "3_0",
    "3n",
    " 3",
    "3 ",
    "3\n",
    "\t3",
    "3\r\nX-Injected: 1",
    "3\0",
    "3,3",
    "3;3",
    "--3",
    "++3",
    "+-3",
    "- 3",
    "+",
    "-",
    ":",
    "+:",
    "03",
    "003",
    "-003",
    "0300",
    "13:60",
    "+13:60",
    "+1360",
    "+03:0",
    "+03:000",
    "+003:00",
    "+03:00:00",
    "+03.00",
    "+03:-0",
    "+05:07",
    "+0507",
    "+14:15",
    "+14:01",
    "-12:15",
    "-13:00",
    "+15:00",
    "+24:00",
    "+99:99",
    "-99",
    "77",
    "UTC3",
    "UTC03:00",
    "UTC+330",
    "UTC+15",
    "UTC+77",
    "GMT+3:7",
    "UTC +3",
    "utc+3",
    "UTCZ",
    "UTC+Z",
    "GMTUTC+3",
    "3:5",
    "14:15",
    "16",
    "-13",
    "-14",
    "855",
    "-735",
    "1440",
    "999999999999999999999",
    "٣",
    "+٠٣:٠٠",
    "３",
    "+０３:００",
    "−3",
    "–3",
    "−03:00",
    "＋3",
    "+03：00",
    "Europe/Helsinki",
    "__proto__",
  ])("%j is none", (text) => expect(readUtcOffset(text)).toBeUndefined());

  test("is taken only in forms of the grammar, and always gives a valid offset", () => {
    const pieces = fc.constantFrom("+", "-", ":", "0", "1", "3", "4", "5", "9", "Z", " ", "e", ".", "٣");
    fc.assert(
      fc.property(fc.array(pieces, { maxLength: 7 }), (parts) => {
        const text = parts.join("");
        const minutes = readUtcOffset(text);
        if (minutes === undefined) return;
        expect(text).toMatch(/^(Z|[+-]?\d{1,3}|[+-]\d\d(:?\d\d)?|[+-]?\d\d?:\d\d)$/);
        expect(quarters).toContain(minutes);
      }),
      { numRuns: 5_000 },
    );
  });
});

describe("the document's pattern of the header", () => {
  const { operations } = readSchemas("push-orchestration");
  const header = operations
    .find(({ id }) => id === "savePushToken")
    ?.parameters.find(({ name }) => name === "barrier-user-utc-offset");
  const pattern = new RegExp(header?.schema.pattern ?? "", "u");

  /** Beyond offsets it takes what may be the name of a zone. */
  function expectSame(text: string): boolean {
    const isRead = readUtcOffset(text) !== undefined;
    const maybeZone = /^[A-Za-z]/.test(text) && !/^(?:UTC|GMT)[+-]\d/.test(text);
    if (pattern.test(text) !== isRead && (isRead || !maybeZone)) expect.unreachable(text);
    return isRead;
  }

  test("is what is read, for every short text", () => {
    const pieces = ["+", "-", ":", "0", "1", "3", "5", "7", "Z", "UTC", "GMT", " ", "e", "/"];
    let taken = 0;
    for (const text of shortTexts(pieces, 5)) if (expectSame(text)) taken += 1;
    expect(taken).toBeGreaterThan(200);
  });

  test("is what is read, for every number and every time of day", () => {
    const signs = ["", "UTC", "GMT", "utc"].flatMap((prefix) => ["", "+", "-"].map((sign) => prefix + sign));
    const numbers = Array.from({ length: 10_000 }, (_, number) => [
      ...[`${number}`, `${number}`.padStart(2, "0"), `${number}`.padStart(4, "0")],
      ...[`${number}`.padStart(3, "0"), `${number}`.padStart(4, "0")].map((text) =>
        text.replace(/..$/, ":$&"),
      ),
    ]);
    for (const sign of signs) for (const text of numbers.flat()) expectSame(sign + text);
  });

  test("takes the names of all zones", () => {
    const links = [
      "UTC",
      "Etc/GMT+12",
      "Etc/GMT0",
      "US/East-Indiana",
      "EST5EDT",
      "W-SU",
      "Asia/Kolkata",
      "utc",
    ];
    for (const name of [...Intl.supportedValuesOf("timeZone"), ...links]) {
      expect(name).toMatch(pattern);
      expect(zoneTime(name, Date.now()), name).toBeDefined();
    }
  });
});

test("every offset that is answered means the same when it is sent back", () => {
  for (const minutes of quarters) {
    expect(minutesOf(minutes)).toBe(minutes);
    expect(readUtcOffset(String(minutes))).toBe(minutes);
  }
});
