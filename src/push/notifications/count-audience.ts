/**
 * Counts the devices of an audience, for a preview. Those of named users one by one; those that filters match in samples,
 * windows of ids spread evenly over all of them, as counting a million takes seconds.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database, plannedEachTime } from "../../platform/database/database.ts";
import { boolean, integer, names, nullable, number, oneOf } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, type RowOf, rows, selection } from "../../platform/database/sql/statements.ts";
import { platformOf } from "../devices/platform.ts";
import { numberOf } from "../history/history-blocks.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { devices } from "../schema.ts";
import { includedUsers } from "./audience.ts";
import { asksForOffsets, isOneOf } from "./device-filters.ts";
import { isLive, type PlanStep } from "./plan-range.ts";
import type { CountedAudience } from "./preview.ts";
import type { NotificationRequest } from "./read-notification.ts";
import { createZones } from "./zones.ts";

/** Windows of ids, and the ids of each. As many devices as they have are counted within some ten milliseconds. */
const windows = 50;
const windowSize = 500;

const device = names(devices);
const platforms = ["ios", "android", "web"] as const;

const shareFields = {
  provider: computed(oneOf(providerNames), device.provider),
  language: device.language,
  platform: computed(nullable(oneOf(platforms)), platformOf(device.platform, device.provider)),
  isOut: computed(boolean, sql`is_out`),
  devices: computed(number, sql`count(*)::float8`),
};
const share = selection(shareFields);
type Share = RowOf<typeof shareFields>;

const ends = selection({
  least: computed(number, sql`coalesce(min(${device.id}), 0)::float8`),
  greatest: computed(number, sql`coalesce(max(${device.id}), 0)::float8`),
});

type Counted = Pick<NotificationRequest, "audience" | "delivery">;
type StepTime = Pick<PlanStep, "providers" | "at">;

/** @param providers those in use: devices of others are not sent to */
export function createCountAudience(db: Database, providers: readonly ProviderName[]) {
  const zonesOf = createZones();

  return async ({ audience, delivery }: Counted, now: number): Promise<CountedAudience> => {
    const { anyOf, everybody, except, exceptUsers } = audience;
    const zones = asksForOffsets(audience) ? await zonesOf(db, now) : undefined;
    const step = { providers, at: new Date(now) };
    const named = [...audience.users, ...audience.personal.map(({ user }) => user)];
    const isAmong = (users: readonly string[]) => sql`${device.userId} = any(${arrayLiteral(users)}::text[])`;
    const isOut = sql`(${isOneOf(except, zones)} or ${isAmong(exceptUsers)})`;
    // A plan that is kept compares each device with each of the users: it cannot look them up in a table of hashes.
    const sharesOf: SharesOf = (condition, from = sql`${devices}`) =>
      rows(
        db,
        share,
        sql`${sql.raw(plannedEachTime)}
          select ${share} from (select *, ${isOut} as is_out from ${from} where ${condition} and ${isLive(step)}) as device
          group by 1, 2, 3, 4`,
      );

    const exact = named.length > 0 ? await sharesOf(isAmong(named)) : [];
    const isFiltered = sql`${everybody ? sql`true` : isOneOf(anyOf, zones)} and not ${isAmong(named)}`;
    const hasFilters = everybody || anyOf.length > 0;
    const sample = hasFilters ? await sampled(db, isFiltered, sharesOf) : { shares: [], isEstimate: false };
    const shares = [...exact, ...sample.shares];
    const included = includedUsers(audience).map(({ user }) => user);
    const users = await countUsers(db, included, delivery.history, step, isOut);
    return {
      users: hasFilters ? undefined : users.users,
      shares: shares.filter((one) => !one.isOut).map(({ isOut: _in, ...one }) => one),
      excluded: shares.reduce((sum, one) => sum + (one.isOut ? one.devices : 0), 0),
      withoutDevice: users.withoutDevice,
      isEstimate: sample.isEstimate,
    };
  };
}

/** Who has a device that is in is a recipient, and who is known, has none at all, and finds it in his history. */
function countUsers(db: Database, users: readonly string[], history: boolean, step: StepTime, isOut: SQL) {
  const isReader = sql`(${history}::boolean and devices_all = 0 and known_number is not null)`;
  const counted = selection({
    users: computed(integer, sql`(count(*) filter (where devices_in > 0 or ${isReader}))::int`),
    withoutDevice: computed(integer, sql`(count(*) filter (where devices_live = 0))::int`),
  });
  const owned = sql`
    select count(*) as devices_all, count(*) filter (where ${isLive(step)}) as devices_live,
      count(*) filter (where ${isLive(step)} and not ${isOut}) as devices_in
    from ${devices} where ${device.userId} = person and ${device.expiresAt} > ${step.at.toISOString()}::timestamptz`;
  return onlyRow(
    db,
    counted,
    sql`
      select ${counted} from unnest(${arrayLiteral(users)}::text[]) as listed (person)
      cross join lateral (${owned}) as owned
      left join lateral ${numberOf(sql`person`)}`,
  );
}

/** Counts what meets a condition among devices; `from`: other rows with their columns. */
type SharesOf = (condition: SQL, from?: SQL) => Promise<Share[]>;

async function sampled(
  db: Database,
  condition: SQL,
  sharesOf: SharesOf,
): Promise<{ shares: readonly Share[]; isEstimate: boolean }> {
  const { least, greatest } = await onlyRow(db, ends, sql`select ${ends} from ${devices}`);
  const span = greatest - least + 1;
  if (span <= windows * windowSize) return { shares: await sharesOf(condition), isEstimate: false };
  const step = (span - windowSize) / (windows - 1);
  const starts = Array.from({ length: windows }, (_, index) => Math.round(least + index * step));
  // `offset 0` makes PostgreSQL look into the index for each window; it would read the whole table otherwise.
  const looked = sql`
    unnest(${arrayLiteral(starts)}::bigint[]) as window_start cross join lateral (
      select * from ${devices}
      where ${device.id} >= window_start and ${device.id} < window_start + ${windowSize}::bigint offset 0
    ) as looked`;
  const found = await sharesOf(condition, looked);
  const factor = span / (windows * windowSize);
  return {
    shares: found.map((one) => ({ ...one, devices: Math.round(one.devices * factor) })),
    isEstimate: true,
  };
}
