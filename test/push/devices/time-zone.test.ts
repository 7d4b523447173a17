/** Time zones: their names, and their offsets before and after each change. */
import { describe, expect, test } from "vitest";
import { zoneTime } from "../../../src/push/devices/time-zone.ts";

const at = (name: string, moment: string) => zoneTime(name, Date.parse(moment))?.utcOffset;

describe("a time zone", () => {
  test.each([
    ["Europe/Berlin", "2027-03-28T00:59:59Z", 60],
    ["Europe/Berlin", "2027-03-28T01:00:00Z", 120],
    ["Europe/Berlin", "2027-10-31T00:59:59Z", 120],
    ["Europe/Berlin", "2027-10-31T01:00:00Z", 60],
    ["America/New_York", "2027-01-01T00:00:00Z", -300],
    ["America/St_Johns", "2027-07-01T00:00:00Z", -150],
    ["Australia/Lord_Howe", "2027-01-01T00:00:00Z", 660],
    ["Australia/Lord_Howe", "2027-07-01T00:00:00Z", 630],
    ["Pacific/Chatham", "2027-01-01T00:00:00Z", 825],
    ["Pacific/Kiritimati", "2027-01-01T00:00:00Z", 840],
    ["Asia/Kathmandu", "2027-01-01T00:00:00Z", 345],
    ["Etc/GMT+12", "2027-01-01T00:00:00Z", -720],
    ["UTC", "2027-01-01T00:00:00Z", 0],
  ])("%s is at %s %i minutes from UTC", (name, moment, minutes) => {
    expect(at(name, moment)).toBe(minutes);
    // And back, whatever was looked up last.
    at(name, "2026-06-01T12:00:00Z");
    expect(at(name, moment)).toBe(minutes);
  });

  test("has one name, however it is written", () => {
    const name = (text: string) => zoneTime(text, Date.now())?.timeZone;
    expect(name("europe/BERLIN")).toBe("Europe/Berlin");
    expect(name("Asia/Kolkata")).toBe(name("Asia/Calcutta"));
    expect(name("gmt")).toBe("UTC");
  });

  test.each([
    "",
    "Z",
    "z",
    "Europe",
    "Europe/",
    "Mars/Olympus_Mons",
    "+03:00",
    "UTC+3",
    "GMT+03:00",
    "__proto__",
  ])("%j is none", (name) => expect(zoneTime(name, Date.now())).toBeUndefined());

  test("is within the offsets that a notification can be sent to", () => {
    for (const month of ["01", "07"]) {
      for (const name of Intl.supportedValuesOf("timeZone")) {
        const minutes = at(name, `2027-${month}-01T00:00:00Z`) ?? Number.NaN;
        expect(Number.isInteger(minutes / 15), name).toBe(true);
        expect(minutes >= -720 && minutes <= 840, name).toBe(true);
      }
    }
  });
});
