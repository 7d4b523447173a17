/**
 * The rows of devices, one for each token. A renewed token keeps its id; one that changes its user gets a new one, so
 * that nothing that was planned for the former user is sent to it. Times are the database's.
 */
import { createHash } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { boolean, names } from "../../platform/database/sql/readers.ts";
import {
  computed,
  prepared,
  type RowOf,
  rowCount,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { noRequest, originFields } from "../../platform/messaging/outbox.ts";
import { PushEvents, recordEvent, removalReasonName } from "../events.ts";
import type { ProviderName } from "../provider-settings.ts";
import { devices } from "../schema.ts";
import type { Platform } from "./platform.ts";
import { devicesWhere } from "./remove-devices.ts";

/** A device as its app registers it. */
interface Registration {
  readonly userId: string;
  readonly provider: ProviderName;
  readonly token: string;
  /** The device's identity at its provider, which is the same for each spelling of its token. */
  readonly identity: string;
  /** See `KeptToken`. */
  readonly installation?: string;
  readonly expiresAt: Date;
  /** Minutes, and the name of the time zone if the app gave one; undefined: unchanged, or UTC for a new device. */
  readonly zone: { readonly utcOffset: number; readonly timeZone: string | null } | undefined;
  /** With its script, as `languageRange` has it; undefined: unchanged, or none. */
  readonly language: string | undefined;
  readonly platform: Platform | undefined;
  readonly authorizationId: string | undefined;
}

/** The hash of a device's identity, by which its row is found; in hexadecimal, as both drivers send text alike. */
export function hashOf(identity: string): string {
  return createHash("sha256").update(identity).digest("hex");
}

const { id, userId, provider, token, tokenHash, utcOffset, timeZone, language, platform } = names(devices);
const { expiresAt, registeredAt, renewedAt, authorizationId } = names(devices);
const deviceId = sql`${id}::text`;
/** An expression: an id that no device has had. */
const nextId = sql`nextval(pg_get_serial_sequence('push.devices', 'id'))`;

/** The statement that writes the event of a registered token for each row of `from`, which has a device's columns. */
function registered(from: SQL): SQL {
  return recordEvent(PushEvents.tokenRegistered, { userId, deviceId, provider, utcOffset }, { from });
}

const parameters = [
  "userId",
  "provider",
  "token",
  "tokenHash",
  "utcOffset",
  "timeZone",
  "language",
  "platform",
  "expiresAt",
  "authorizationId",
  "installation",
] as const;

const renewalFields = {
  isMoved: computed(boolean, sql`former_user <> ${userId}`),
  hasOthers: computed(boolean, sql`has_others`),
};
const renewal = selection(renewalFields);

const updateKnown = prepared(parameters, (parameter) => {
  const isSame = sql`former_user = ${parameter.userId}`;
  const hash = sql`decode(${parameter.tokenHash}, 'hex')`;
  const moved = sql`from renewed where former_user <> ${userId}`;
  return sql`
    with known as (
      select ${id} as former_id, ${userId} as former_user, ${provider} as former_provider
      from ${devices} where ${tokenHash} = ${hash} for update
    ), renewed as (
      update ${devices}
      set ${id} = case when ${isSame} then ${id} else ${nextId} end,
        ${userId} = ${parameter.userId}, ${provider} = ${parameter.provider}, ${token} = ${parameter.token},
        ${utcOffset} = coalesce(${parameter.utcOffset}::smallint, ${utcOffset}),
        ${timeZone} = case when ${parameter.utcOffset}::smallint is null then ${timeZone} else ${parameter.timeZone} end,
        ${language} = coalesce(${parameter.language}, ${language}),
        ${platform} = coalesce(${parameter.platform}, ${platform}),
        ${expiresAt} = ${parameter.expiresAt}::timestamptz, ${renewedAt} = now(),
        ${authorizationId} = ${parameter.authorizationId},
        ${registeredAt} = case when ${isSame} then ${registeredAt} else now() end
      from known where ${tokenHash} = ${hash}
      returning ${id}, ${userId}, ${provider}, ${utcOffset}, former_id, former_user, former_provider
    ), taken_away as (
      ${recordEvent(
        PushEvents.tokenRemoved,
        {
          userId: sql`former_user`,
          deviceId: sql`former_id::text`,
          provider: sql`former_provider`,
          reason: sql`${removalReasonName("MOVED")}::text`,
          ...originFields(noRequest),
        },
        { from: moved },
      )}
    ), given as (${registered(moved)}
    )
    select ${renewal} from renewed cross join (
      select exists (
        select from ${devices} where ${parameter.installation}::text is not null and ${tokenHash} <> ${hash}
          and ${ofInstallation(parameter.userId, parameter.provider, parameter.installation)}) as has_others
    ) as looked`;
});

/**
 * Renews a known token, in one statement. A token of another user becomes this user's, with an event for each of them.
 * @returns whether it was another user's, and whether {@link replaced} finds rows; undefined if the token is not known
 */
export async function renew(
  db: Database,
  registration: Registration,
): Promise<RowOf<typeof renewalFields> | undefined> {
  const [renewed] = await rows(db, renewal, updateKnown(valuesOf(registration)));
  return renewed;
}

const insertNew = prepared(
  parameters,
  (parameter) => sql`
    with same as (
      select ${utcOffset}, ${timeZone}, ${language}, ${platform} from ${devices}
      where ${parameter.installation}::text is not null
        and ${ofInstallation(parameter.userId, parameter.provider, parameter.installation)}
      order by ${renewedAt} desc, ${id} desc limit 1
    ), registered as (
      insert into ${devices} (${userId}, ${provider}, ${token}, ${tokenHash}, ${utcOffset}, ${timeZone},
        ${language}, ${platform}, ${expiresAt}, ${registeredAt}, ${renewedAt}, ${authorizationId})
      values (${parameter.userId}, ${parameter.provider}, ${parameter.token}, decode(${parameter.tokenHash}, 'hex'),
        coalesce(${parameter.utcOffset}::smallint, (select ${utcOffset} from same), 0),
        case when ${parameter.utcOffset}::smallint is null then (select ${timeZone} from same)
          else ${parameter.timeZone} end,
        coalesce(${parameter.language}, (select ${language} from same)),
        coalesce(${parameter.platform}, (select ${platform} from same)),
        ${parameter.expiresAt}::timestamptz, now(), now(), ${parameter.authorizationId})
      on conflict (${tokenHash}) do nothing
      returning ${id}, ${userId}, ${provider}, ${utcOffset}
    )
    ${registered(sql`from registered`)}`,
);

/** Registers a new token, with its event. @returns false if another call has registered the token meanwhile */
export async function register(db: Database, registration: Registration): Promise<boolean> {
  return (await rowCount(db, insertNew(valuesOf(registration)))) === 1;
}

function valuesOf(registration: Registration) {
  return {
    userId: registration.userId,
    provider: registration.provider,
    token: registration.token,
    tokenHash: hashOf(registration.identity),
    utcOffset: registration.zone?.utcOffset ?? null,
    timeZone: registration.zone?.timeZone ?? null,
    language: registration.language ?? null,
    platform: registration.platform ?? null,
    expiresAt: registration.expiresAt.toISOString(),
    authorizationId: registration.authorizationId ?? null,
    installation: registration.installation ?? null,
  };
}

/** A condition: the device is of this installation of the user's app. */
function ofInstallation(user: unknown, providerName: unknown, installation: unknown): SQL {
  return sql`${userId} = ${user} and ${provider} = ${providerName} and starts_with(${token}, ${installation}::text)`;
}

/** A query for `removeDevices`: the rows that are the same device as this one, apart from the newest of them. */
export function replaced(registration: Registration): SQL {
  const isSame = ofInstallation(
    registration.userId,
    registration.provider,
    registration.installation ?? null,
  );
  return devicesWhere(sql`${isSame} and (${renewedAt}, ${id}) < (
    select ${renewedAt}, ${id} from ${devices} where ${isSame} order by ${renewedAt} desc, ${id} desc limit 1)`);
}

/** A query for `removeDevices`: the devices of a user apart from the last renewed. @param most how many stay */
export function beyondNewest(user: string, most: number): SQL {
  const newestFirst = sql`order by ${renewedAt} desc, ${id} desc`;
  // A device that is renewed while this waits for its row is compared again, and stays.
  const isBeyond = sql`${userId} = ${user} and (${renewedAt}, ${id}) < (
    select ${renewedAt}, ${id} from ${devices} where ${userId} = ${user} ${newestFirst} offset ${most - 1}::int limit 1)`;
  return devicesWhere(isBeyond, sql`limit 1000`);
}
