/**
 * The devices of users: registered and renewed by their apps, removed by their users. Owns who may do what to
 * a token: whoever presents it has it, and nobody removes another's.
 */
import { sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { type InputError, invalidInput, unavailable } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { PushProvider } from "../providers/provider.ts";
import { devices } from "../schema.ts";
import { hashOf, register, renew } from "./device-repository.ts";
import { removeDevices } from "./remove-devices.ts";

/** A device as its app saves it. */
export interface DeviceToSave {
  readonly token: string;
  readonly expiration: Date;
  /** The default one unless given. */
  readonly provider?: ProviderName;
  /** Minutes. Undefined: UTC for a new token; a known one keeps its own. */
  readonly utcOffset: number | undefined;
}

export interface Devices {
  /**
   * Stores or renews a token. One that is another user's becomes the caller's. There is one row for each token
   * at any moment, and of several that save it at once the last one has it.
   * @throws invalid_request
   */
  save(userId: string, device: DeviceToSave): Promise<void>;
  /** Removes the token if it is the caller's; all of the caller's if none is given. Can be repeated. */
  remove(userId: string, token: string | undefined): Promise<void>;
}

interface Dependencies {
  readonly db: Database;
  readonly clock: Clock;
  /** Those in use. */
  readonly providers: ReadonlyMap<ProviderName, Pick<PushProvider, "tokenProblem">>;
  readonly defaultProvider: ProviderName;
}

/** Characters of a token. */
const longestToken = 4096;
/** What a database and the documents both can write: four digits of a year. */
const latestExpiration = Date.UTC(9999, 11, 31);
/** Looks whether a token is known; each but the first only if it was registered or removed that moment. */
const maxRounds = 20;
/** Devices that one statement removes. */
const batchSize = 1_000;

const device = names(devices);

export function createDevices({ db, clock, providers, defaultProvider }: Dependencies): Devices {
  function* problems({ token, expiration, provider = defaultProvider }: DeviceToSave): Generator<InputError> {
    const inUse = providers.get(provider);
    const problem = formProblem(token) ?? inUse?.tokenProblem(token);
    if (problem !== undefined) yield { pointer: "/body/token", message: problem };
    if (!inUse) {
      const names = [...providers.keys()].join(", ");
      yield { pointer: "/body/provider", message: `must be one of ${names}` };
    }
    const expires = expiration.getTime();
    if (!(expires > clock.now() && expires <= latestExpiration)) {
      yield { pointer: "/body/expiration", message: "must be a moment in the future" };
    }
  }

  return {
    async save(userId, toSave) {
      const errors = [...problems(toSave)];
      if (errors.length > 0) throw invalidInput(errors);
      const { token, expiration: expiresAt, provider = defaultProvider, utcOffset } = toSave;
      const registration = { userId, provider, token, expiresAt, utcOffset };
      const now = new Date(clock.now());
      for (let round = 0; round < maxRounds; round += 1) {
        if ((await renew(db, registration, now)) || (await register(db, registration, now))) return;
      }
      throw unavailable("The device registry", new Error("a token comes and goes too fast"));
    },

    async remove(userId, token) {
      const which =
        token === undefined ? sql`` : sql`and ${device.tokenHash} = decode(${hashOf(token)}, 'hex')`;
      const chosen = sql`
        select ${device.id} as chosen_id from ${devices}
        where ${device.userId} = ${userId} ${which} order by ${device.id} limit ${batchSize} for update`;
      for (let removed = 1; removed > 0; ) {
        removed = await removeDevices(db, chosen, "USER");
        if (token !== undefined) return;
      }
    },
  };
}

/** What no provider takes, and the database cannot keep. */
function formProblem(token: string): string | undefined {
  // Characters, as the documents count them: not more than there are code units, and at least half as many.
  const tooLong =
    token.length > longestToken && (token.length > 2 * longestToken || [...token].length > longestToken);
  if (token === "" || tooLong) return `must have 1 to ${longestToken} characters`;
  if (token.includes("\0") || !token.isWellFormed()) return "must be Unicode text without NUL";
  return undefined;
}
