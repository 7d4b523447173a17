/**
 * Steps of planning for audiences other than offsets, on two axes: the devices that filters match, range by range of
 * ids, and the users who are named, range by range of positions. A device lies on one of them: the first leaves out the
 * devices of named users, the second those that came after the notification.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { integer, names, number } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, rows, selection } from "../../platform/database/sql/statements.ts";
import { entriesFor, numberOf } from "../history/history-blocks.ts";
import { rowsFor } from "../history/history-entries.ts";
import { notificationUsers } from "../recipients-schema.ts";
import { devices, notifications } from "../schema.ts";
import type { FilteredAudience } from "./audience.ts";
import { isOneOf } from "./device-filters.ts";
import { chunksOfFound, isLive, type Planned, type PlanStep, runStep } from "./plan-range.ts";
import { isIn } from "./range-devices.ts";
import { hasOther, type Zones, zonesInUse } from "./zones.ts";

/** The most devices that a step looks at, to find those that match. */
const mostLookedAt = 200_000;

/** How the history has the entries of a notification: as rows of users, in blocks, or not at all. */
export type EntryKind = "rows" | "blocks" | "none";

interface AudienceStep extends PlanStep {
  readonly audience: FilteredAudience;
  /** Undefined unless a filter asks for offsets. */
  readonly zones: Zones | undefined;
  readonly entries: EntryKind;
}

const device = names(devices);
const { id, userId, provider, utcOffset, expiresAt } = device;
const notification = names(notifications);
const named = names(notificationUsers, "named");
const columns = sql.join([id, userId, provider, expiresAt], sql`, `);

/** Items of a `with` list after `recipient`, with the column `own_variables`. */
function entriesOf({ entries, notificationId }: Pick<AudienceStep, "entries" | "notificationId">): SQL {
  const of = sql`${notificationId}::uuid`;
  if (entries === "none") return sql``;
  return sql`${entries === "rows" ? rowsFor(sql`recipient`, of) : entriesFor(sql`recipient`, of)},`;
}

/** How many recipients the step has found. */
export const usersOfStep = sql`(select count(distinct person)::int from recipient)`;

/** A condition on a row of devices alone: somebody sends to it, and it is in by a filter. */
function isMatch(step: AudienceStep): SQL {
  const { audience, zones } = step;
  const { anyOf, except, everybody } = audience;
  return sql`${isLive(step)} and ${everybody ? sql`true` : isOneOf(anyOf, zones)} and not ${isOneOf(except, zones)}`;
}

/** A condition on a row of devices alone: it is in by a filter, and its user is not named. */
const isFiltered = (step: AudienceStep): SQL => sql`
  ${isMatch(step)} and ${userId} not in (
    select ${named.userId} from ${notificationUsers} named where ${named.notificationId} = ${step.notificationId}::uuid)`;

/** How many recipients the step has found who have no device in the steps before: each is counted at the first one. */
const newUsersOf = (step: AudienceStep): SQL => sql`
  (select count(distinct person)::int from recipient where not exists (
    select from ${devices} where ${userId} = person and ${id} <= ${step.after}::bigint and ${isMatch(step)} offset 0))`;

/** Plans the devices of a range of ids. */
export function planDevices(tx: Database, step: AudienceStep): Promise<Planned> {
  const { zones } = step;
  return runStep(
    tx,
    sql`
      ${zones ? sql`${zonesInUse},` : sql``}
      found as materialized (
        select ${id}, ${provider}, 0::smallint as ${utcOffset}, ${userId} as person, known_number
        from (
          select ${columns} from ${devices} where ${isIn(step)} and ${isFiltered(step)} offset 0
        ) as device
        left join lateral ${numberOf(names(devices, "device").userId)}
      ),
      recipient as (select person, ${utcOffset} as minutes, ${id} as device, known_number from found),
      ${entriesOf(step)}
      ${chunksOfFound(step)}`,
    {
      users: step.entries === "none" ? newUsersOf(step) : sql`0`,
      isOutdated: zones ? hasOther(zones) : sql`false`,
    },
  );
}

const looked = selection({
  matches: computed(integer, sql`count(*)::int`),
  /** 0: there is none. */
  last: computed(number, sql`coalesce(max(${id}), 0)::float8`),
});
const deviceId = selection({ id });

/**
 * Finds where to split a range of ids: where it has as many devices that match as a step may have, or where a step has
 * looked at enough.
 * @param size the most devices of a step
 * @param mostSeen the most devices that it looks at
 * @returns the last id of the first part; undefined: the range need not be split
 */
export async function endOfDevices(
  tx: Database,
  step: AudienceStep,
  size: number,
  mostSeen = mostLookedAt,
): Promise<number | undefined> {
  const { after, through } = step;
  if (through - after <= size) return undefined;
  const isBefore = (end: number | undefined) => (end !== undefined && end < through ? end : undefined);
  const matching = sql`
    select ${id} from (
      select ${id}, ${isFiltered(step)} as is_in
      from ${devices} where ${isIn(step)} order by ${id} limit ${mostSeen}::int
    ) as seen
    where is_in order by ${id} limit ${size}::int`;
  const { matches, last } = await onlyRow(tx, looked, sql`select ${looked} from (${matching}) as matched`);
  if (matches === size) return isBefore(last);
  const [beyond] = await rows(
    tx,
    deviceId,
    sql`
      select ${deviceId} from ${devices} where ${isIn(step)} order by ${id}
      offset ${mostSeen - 1}::int limit 1`,
  );
  return isBefore(beyond?.id);
}

/**
 * Plans the users of a range of positions, on all the devices that they had when the notification was accepted. Known
 * users among them without a device are recipients, too, where there is a history.
 * @param ending further items of the statement's `with` list
 */
export function planUsers(tx: Database, step: AudienceStep, ending = sql``): Promise<Planned> {
  const { notificationId, after, through, at, audience, zones, entries } = step;
  const last = sql`
    select ${notification.lastDeviceId} from ${notifications} where ${notification.id} = ${notificationId}::uuid`;
  return runStep(
    tx,
    sql`
      ${zones ? sql`${zonesInUse},` : sql``}
      listed as materialized (
        select ${named.userId} as person, ${named.variables} as own_variables, known_number
        from ${notificationUsers} named
        left join lateral ${numberOf(named.userId)}
        where ${named.notificationId} = ${notificationId}::uuid and not ${named.isExcluded}
          and ${named.position} > ${after}::int and ${named.position} <= ${through}::int
      ),
      owned as materialized (
        select device.*, person, own_variables, known_number from listed
        cross join lateral (
          select ${columns}, ${isLive(step)} and not ${isOneOf(audience.except, zones)} as is_in
          from ${devices} where ${userId} = person and ${id} <= (${last}) offset 0
        ) as device
        where ${expiresAt} > ${at.toISOString()}::timestamptz
      ),
      found as materialized (
        select ${id}, ${provider}, 0::smallint as ${utcOffset}, person, own_variables, known_number
        from owned where is_in
      ),
      recipient as (
        select person, ${utcOffset} as minutes, ${id} as device, known_number, own_variables from found
        union all
        select person, 0, 0, known_number, own_variables from listed
        where ${entries !== "none"}::boolean and known_number is not null
          and not exists (select from owned where owned.person = listed.person)
      ),
      ${entriesOf(step)}
      ${chunksOfFound(step)}${ending}`,
    { users: usersOfStep, isOutdated: zones ? hasOther(zones) : sql`false` },
  );
}
