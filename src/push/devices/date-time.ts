const dateTime = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2})(:\d{2}(?:\.\d+)?)?(Z|[+-]\d{2})(?::?(\d{2}))?$/;

/**
 * Reads a date-time of ISO 8601 with an offset: with or without seconds, `Z`, `+03:00`, `+0300` or `+03`.
 * @returns milliseconds since the epoch; undefined if the text is no date-time, or of a day that does not exist
 */
export function readDateTime(text: string): number | undefined {
  const [, date = "", minute, second = ":00", zone = "", zoneMinutes = "00"] = dateTime.exec(text) ?? [];
  const day = new Date(date);
  // ECMAScript reads the 30th of February as the 2nd of March.
  if (Number.isNaN(day.getTime()) || !day.toISOString().startsWith(date)) return undefined;
  const instant = Date.parse(`${date}T${minute}${second}${zone === "Z" ? zone : `${zone}:${zoneMinutes}`}`);
  return Number.isNaN(instant) ? undefined : instant;
}
