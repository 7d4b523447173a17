/**
 * The devices of users: registered and renewed by their apps, removed by their users. A token belongs to the user who
 * saved it last, and users can only remove their own tokens.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { type InputError, invalidInput, unavailable } from "../../platform/base/errors.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import type { RequestOrigin } from "../../platform/messaging/outbox.ts";
import { canonicalLanguage, languageRange } from "../content/languages.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { KeptToken, PushProvider } from "../providers/provider.ts";
import { devices } from "../schema.ts";
import { beyondNewest, hashOf, register, renew, replaced } from "./device-repository.ts";
import type { Platform } from "./platform.ts";
import { devicesWhere, removeDevices } from "./remove-devices.ts";
import { zoneTime } from "./time-zone.ts";

/** A device as its app saves it. */
export interface DeviceToSave {
  readonly token: string;
  readonly expiration: Date;
  /** The deployment's default provider unless given. */
  readonly provider?: ProviderName;
  /** Minutes east of UTC, or the name of a time zone. Undefined: UTC for a new device, unchanged for a known one. */
  readonly utcOffset: number | string | undefined;
  /** A language tag (BCP 47). Undefined: none for a new device, unchanged for a known one; so is the platform. */
  readonly language?: string | undefined;
  readonly platform?: Platform | undefined;
  /** The authorization whose end takes the device away; undefined: there is none. */
  readonly authorizationId?: string | undefined;
}

export interface Devices {
  /**
   * Stores or renews a token. A token of another user becomes the caller's. A device has one row, whatever its token's
   * spelling; if several users save it at once, it belongs to the last of them.
   * @throws invalid_request
   */
  save(userId: string, device: DeviceToSave): Promise<void>;
  /** Removes the token if it is the user's. Can be repeated. */
  remove(userId: string, token: string, origin?: RequestOrigin): Promise<void>;
  /** Removes all tokens of the user. Can be repeated. */
  removeAll(userId: string, origin?: RequestOrigin): Promise<void>;
}

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  /** The providers in use. */
  readonly providers: ReadonlyMap<ProviderName, Pick<PushProvider, "tokenProblem" | "deviceOf">>;
  readonly defaultProvider: ProviderName;
  /** The most devices of a user; a further one replaces the one that was renewed longest ago. */
  readonly maxPerUser: number;
}

/** The most characters of a token. */
const longestToken = 4096;
/** The latest expiration, as years have four digits in the documents and in statements; a later one is set to this. */
const latestExpiration = Date.UTC(9999, 11, 31, 23, 59, 59, 999);
/** The most tries to save a token; another is needed only if it was registered or removed at that moment. */
const maxRounds = 20;
/** The most devices that one statement removes. */
const batchSize = 1_000;

const device = names(devices);

export function createDevices({ db, clock, providers, defaultProvider, maxPerUser }: Dependencies): Devices {
  const keptBy = (provider: ProviderName, token: string): KeptToken =>
    providers.get(provider)?.deviceOf?.(token) ?? { token, identity: token };
  /** The identities that the token would have at each provider. */
  const identitiesOf = (token: string): string[] => [
    token,
    ...[...providers].flatMap(([name, provider]) => {
      return provider.tokenProblem(token) === undefined ? [keptBy(name, token).identity] : [];
    }),
  ];

  function* problems({
    token,
    expiration,
    provider = defaultProvider,
    utcOffset,
    language,
  }: DeviceToSave): Generator<InputError> {
    const inUse = providers.get(provider);
    const problem = textProblem(token) ?? inUse?.tokenProblem(token);
    if (problem !== undefined) yield { pointer: "/body/token", message: problem };
    if (!inUse) {
      const names = [...providers.keys()].join(", ");
      yield { pointer: "/body/provider", message: `must be one of ${names}` };
    }
    if (typeof utcOffset === "string" && !zoneTime(utcOffset, clock.now())) {
      yield {
        pointer: "/header/barrier-user-utc-offset",
        message: "is neither a UTC offset nor a time zone",
      };
    }
    if (language !== undefined && rangeOf(language) === undefined) {
      yield { pointer: "/body/language", message: "is not the tag of a language (BCP 47), such as de-AT" };
    }
    if (!(expiration.getTime() > clock.now())) {
      yield { pointer: "/body/expiration", message: "must be a moment in the future" };
    }
  }

  return {
    async save(userId, toSave) {
      const errors = [...problems(toSave)];
      if (errors.length > 0) throw invalidInput(errors);
      const { token, expiration, provider = defaultProvider, utcOffset, platform, authorizationId } = toSave;
      const expiresAt = new Date(Math.min(expiration.getTime(), latestExpiration));
      const named = typeof utcOffset === "string" ? zoneTime(utcOffset, clock.now()) : undefined;
      const zone = typeof utcOffset === "number" ? { utcOffset, timeZone: null } : named;
      const registration = {
        ...{ userId, provider, ...keptBy(provider, token), expiresAt, zone, platform, authorizationId },
        language: rangeOf(toSave.language),
      };
      const mayHaveOthers = registration.installation !== undefined;
      for (let round = 0; round < maxRounds; round += 1) {
        const renewed = await renew(db, registration);
        if (!renewed && !(await register(db, registration))) continue;
        const { isMoved, hasOthers } = renewed ?? { isMoved: true, hasOthers: mayHaveOthers };
        if (hasOthers) await removeDevices(db, replaced(registration), "REPLACED");
        if (isMoved) await removeDevices(db, beyondNewest(userId, maxPerUser), "LIMIT");
        return;
      }
      throw unavailable(
        "The device registry",
        new Error("a token is registered and removed too often at the same time"),
      );
    },

    async remove(userId, token, origin) {
      const hashes = arrayLiteral(identitiesOf(token).map(hashOf));
      const isToken = sql`${device.tokenHash} in (select decode(hash, 'hex') from unnest(${hashes}::text[]) as hash)`;
      await removeDevices(db, devicesWhere(sql`${device.userId} = ${userId} and ${isToken}`), "USER", origin);
    },

    async removeAll(userId, origin) {
      const some = devicesWhere(sql`${device.userId} = ${userId}`, sql`limit ${batchSize}`);
      while ((await removeDevices(db, some, "USER", origin)) > 0);
    },
  };
}

/** The language with its script; undefined if nobody knows it. */
function rangeOf(tag: string | undefined): string | undefined {
  const known = tag === undefined ? undefined : canonicalLanguage(tag);
  return known === undefined ? undefined : languageRange(known);
}

/** The reason why no provider, or not the database, can have the token; undefined if there is none. */
function textProblem(token: string): string | undefined {
  // Characters are code points, as in the documents: at most the number of code units, and at least half of it.
  const tooLong =
    token.length > longestToken && (token.length > 2 * longestToken || [...token].length > longestToken);
  if (token === "" || tooLong) return `must have 1 to ${longestToken} characters`;
  if (token.includes("\0") || !token.isWellFormed()) return "must be Unicode text without NUL";
  return undefined;
}
