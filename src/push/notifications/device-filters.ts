/** The filters of an audience as conditions on devices. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { languageSpan } from "../content/languages.ts";
import { platformOf } from "../devices/platform.ts";
import { devices } from "../schema.ts";
import type { DeviceFilter, FilteredAudience } from "./audience.ts";
import { deviceZoneId, type Zones, zonesAt } from "./zones.ts";

/** Whether a filter asks for offsets, so that {@link isOneOf} needs the zones. */
export const asksForOffsets = ({ anyOf, except }: FilteredAudience): boolean =>
  [...anyOf, ...except].some(({ utcOffsets }) => utcOffsets !== undefined);

const { language, platform, provider, timeZone, utcOffset } = names(devices);
const isAmong = (value: SQL, values: readonly string[]) =>
  sql`${value} = any(${arrayLiteral(values)}::text[])`;

const or = (conditions: readonly SQL[]): SQL =>
  conditions.length === 0 ? sql`false` : sql`(${sql.join([...conditions], sql` or `)})`;

function speaks(tag: string): SQL {
  const { from, before } = languageSpan(tag);
  return sql`${language} >= ${from} and ${language} < ${before}`;
}

/** Of a zone that this version of Node.js does not know, its devices have offsets of their own. */
function isAt(utcOffsets: readonly number[], zones: Zones): SQL {
  const wanted = zonesAt(zones, utcOffsets);
  const [known, unknown] = [false, true].map((isUnknown) =>
    wanted.filter((zone) => (zone.utcOffset === null) === isUnknown).map(({ id }) => id),
  );
  const offsets = sql`${arrayLiteral(utcOffsets)}::smallint[]`;
  return sql`(${isAmong(deviceZoneId, known ?? [])} or ${isAmong(deviceZoneId, unknown ?? [])}
    and ${utcOffset} = any(${offsets}))`;
}

function matches({ languages, timeZones, utcOffsets, platforms }: DeviceFilter, zones: Zones): SQL {
  const members = [
    ...(languages ? [or(languages.map(speaks))] : []),
    ...(timeZones ? [isAmong(sql`${timeZone}`, timeZones)] : []),
    ...(utcOffsets ? [isAt(utcOffsets, zones)] : []),
    ...(platforms ? [isAmong(platformOf(platform, provider), platforms)] : []),
  ];
  return members.length === 0 ? sql`false` : sql`(${sql.join(members, sql` and `)})`;
}

const nowhere: Zones = { offsets: new Map(), ids: [] };

/**
 * A condition, never null, on a row of devices alone: one of the filters matches it.
 * @param zones those in use; undefined: no filter asks for offsets
 */
export const isOneOf = (filters: readonly DeviceFilter[], zones: Zones = nowhere): SQL =>
  sql`(${or(filters.map((one) => matches(one, zones)))} is true)`;
