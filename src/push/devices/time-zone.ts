/** Time zones of the IANA database, as the copy in Node.js (ICU) knows them. */
import { LRUCache } from "lru-cache";

/** A zone, and its offset at some moment. */
interface ZoneTime {
  /** The name that stands for all names of the zone: `Asia/Calcutta` and `Asia/Kolkata` are one zone. */
  readonly timeZone: string;
  /** Minutes east of UTC. */
  readonly utcOffset: number;
}

/** An offset is computed once in a quarter of an hour, as zones change their offsets at quarters. */
const quarterMs = 15 * 60 * 1000;
/** The offsets computed last, by name. There are about 600 names. */
const known = new LRUCache<string, ZoneTime & { readonly quarter: number }>({ max: 1_000 });

/**
 * Looks up a time zone; undefined if there is no such zone.
 * @param name as in the IANA database, in any case
 * @param at milliseconds since the epoch; the offset is that of the beginning of this quarter of an hour
 */
export function zoneTime(name: string, at: number): ZoneTime | undefined {
  const quarter = Math.floor(at / quarterMs);
  const last = known.get(name);
  if (last?.quarter === quarter) return last;
  const computed = compute(name, quarter * quarterMs);
  if (computed) known.set(name, { ...computed, quarter });
  return computed;
}

function compute(name: string, at: number): ZoneTime | undefined {
  // `Intl` takes offsets such as `+03:00` as well, which are no zones.
  if (!/^[A-Za-z]/.test(name)) return undefined;
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat("en-US", { timeZone: name, timeZoneName: "longOffset" });
  } catch {
    return undefined;
  }
  const text = format.formatToParts(at).find(({ type }) => type === "timeZoneName")?.value;
  // `GMT`, `GMT+05:30`, `GMT-03:00`.
  const [, sign, hours = "0", minutes = "0"] = /^GMT(?:([+-])(\d{2}):(\d{2}))?$/.exec(text ?? "") ?? [];
  const size = Number(hours) * 60 + Number(minutes);
  const { timeZone } = format.resolvedOptions();
  return { timeZone, utcOffset: sign === "-" ? 0 - size : size };
}
