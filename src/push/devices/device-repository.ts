/**
 * Devices as rows: one for each token, whoever's it is. A token that is known keeps its row and its id, so
 * that planning, which walks along the ids, meets it once; only a new token takes a new id.
 */
import { createHash } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";
import { PushEvents, recordEvent, removalReasonName } from "../events.ts";
import type { ProviderName } from "../provider-settings.ts";

/** A device as its app registers it. */
interface Registration {
  readonly userId: string;
  readonly provider: ProviderName;
  readonly token: string;
  readonly expiresAt: Date;
  /** Minutes; undefined: as it was, UTC for a new one. */
  readonly utcOffset: number | undefined;
}

/** The token's hash, by which it is found, as bytes that both drivers send alike. */
export function hashOf(token: string): SQL {
  return sql`decode(${createHash("sha256").update(token).digest("hex")}, 'hex')`;
}

/** Written for each row of `from`, which has the columns of a device. */
function registered(from: SQL): SQL {
  const fields = {
    userId: sql`user_id`,
    deviceId: sql`id::text`,
    provider: sql`provider`,
    utcOffset: sql`utc_offset`,
  };
  return recordEvent(PushEvents.tokenRegistered, fields, from);
}

/**
 * Renews a known token; one that was another user's changes hands, with an event for both of them. One
 * statement. @returns whether the token was known
 */
export async function renew(db: Database, registration: Registration, now: Date): Promise<boolean> {
  const { userId, provider, token, expiresAt, utcOffset } = registration;
  const at = sql`${now.toISOString()}::timestamptz`;
  const moved = sql`from renewed where former_user <> user_id`;
  const renewed = await rows(
    db,
    sql`
      with known as (
        select id as known_id, user_id as former_user, provider as former_provider
        from push.devices where token_hash = ${hashOf(token)} for update
      ), renewed as (
        update push.devices
        set user_id = ${userId}, provider = ${provider}, utc_offset = coalesce(${utcOffset ?? null}::smallint, utc_offset),
          expires_at = ${expiresAt.toISOString()}::timestamptz, renewed_at = ${at},
          registered_at = case when former_user = ${userId} then registered_at else ${at} end
        from known where id = known_id
        returning id, user_id, provider, utc_offset, former_user, former_provider
      ), taken_away as (
        ${recordEvent(
          PushEvents.tokenRemoved,
          {
            userId: sql`former_user`,
            deviceId: sql`id::text`,
            provider: sql`former_provider`,
            reason: sql`${removalReasonName("MOVED")}::text`,
          },
          moved,
        )}
      ), given as (${registered(moved)}
      )
      select 1 as one from renewed`,
  );
  return renewed.length === 1;
}

/** Registers a new token, with its event. @returns false if the token has become known meanwhile */
export async function register(db: Database, registration: Registration, now: Date): Promise<boolean> {
  const { userId, provider, token, expiresAt, utcOffset = 0 } = registration;
  const at = sql`${now.toISOString()}::timestamptz`;
  const inserted = await rows(
    db,
    sql`
      with registered as (
        insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
        values (${userId}, ${provider}, ${token}, ${hashOf(token)}, ${utcOffset}::smallint,
          ${expiresAt.toISOString()}::timestamptz, ${at}, ${at})
        on conflict (token_hash) do nothing
        returning id, user_id, provider, utc_offset
      )
      ${registered(sql`from registered`)}`,
  );
  return inserted.length === 1;
}
