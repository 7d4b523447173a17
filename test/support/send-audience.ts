/** An audience for sends that are measured or disturbed: devices in every zone of the world, made in the database. */
import { sql } from "drizzle-orm";
import type { Database } from "../../src/platform/database/database.ts";
import { historyEntries } from "./history-rows.ts";
import { rows } from "./rows.ts";

/** Minutes east of UTC that somebody's clock shows, all 38 of them. */
export const worldOffsets: readonly number[] = [
  -720, -660, -600, -570, -540, -480, -420, -360, -300, -240, -210, -180, -120, -60, 0, 60, 120, 180, 210,
  240, 270, 300, 330, 345, 360, 390, 420, 480, 525, 540, 570, 600, 630, 660, 720, 765, 780, 840,
];

/** Nobody's clock shows it: devices here must never be reached by a send to the others. */
export const elsewhereOffset = 15;
/** No device is here. */
export const emptyOffset = 75;

export interface Audience {
  /** Devices named `device-1` and so on. */
  readonly devices: number;
  /** Users that they belong to, in turn. */
  readonly users: number;
  /** Where the devices are, in turn; {@link worldOffsets} unless given. Each gives chunks of its own. */
  readonly offsets?: readonly number[];
  /** Their languages, with their scripts, in turn; unless given, none has said. */
  readonly languages?: readonly string[];
}

/**
 * Fills the device table: the audience, and one device for each hundred of it that must not be reached: half of
 * those are {@link elsewhereOffset}, half expired. `progress` is told how many of the audience are there.
 */
export async function fillAudience(
  db: Database,
  { devices, users, offsets = worldOffsets, languages = [] }: Audience,
  progress: (count: number) => void = () => undefined,
): Promise<void> {
  const step = 50_000;
  const offsetArray = `{${offsets.join(",")}}`;
  const languageArray = `{${languages.join(",")}}`;
  for (let from = 1; from <= devices; from += step) {
    const to = Math.min(from + step - 1, devices);
    await insert(
      db,
      sql`select 'user-' || (n % ${users}::int), 'device-' || n,
          (${offsetArray}::smallint[])[n % ${offsets.length}::int + 1], now() + interval '30 days',
          (${languageArray}::text[])[n % ${Math.max(1, languages.length)}::int + 1]
        from generate_series(${from}::int, ${to}::int) n`,
    );
    progress(to);
  }
  const others = Math.max(2, Math.floor(devices / 200));
  await insert(
    db,
    sql`select 'user-' || n, 'elsewhere-' || n, ${elsewhereOffset}::smallint, now() + interval '30 days', null
      from generate_series(1, ${others}::int) n`,
  );
  await insert(
    db,
    sql`select 'user-' || n, 'expired-' || n, 0::smallint, now() - interval '1 hour', null
      from generate_series(1, ${others}::int) n`,
  );
}

/** @param audience selects user_id, token, utc_offset, expires_at, language */
async function insert(db: Database, audience: ReturnType<typeof sql>): Promise<void> {
  await db.execute(sql`
    insert into push.devices (user_id, token, utc_offset, expires_at, provider, token_hash, registered_at, renewed_at,
      language)
    select user_id, token, utc_offset, expires_at, 'fcm', sha256(token::bytea), now() - interval '1 day',
      now() - interval '1 day', language
    from (${audience}) as audience (user_id, token, utc_offset, expires_at, language)`);
}

/** History of one notification: rows, and users, which must be the same. */
export async function historyOf(
  db: Database,
  notificationId: string,
): Promise<{ rows: number; users: number }> {
  const [counted] = await rows<{ rows: number; users: number }>(
    db,
    sql`select count(*)::int as rows, count(distinct user_id)::int as users from ${historyEntries}
      where notification_id = ${notificationId}::uuid`,
  );
  return counted ?? { rows: 0, users: 0 };
}
