/** Whom a notification is for. */

import type { Platform } from "../devices/platform.ts";
import type { AudienceKind } from "../events.ts";

/** Matches a device that every member matches, and a member one of whose values does. It has at least one member. */
export interface DeviceFilter {
  /** Canonical language tags (BCP 47), each of which stands for all tags that it begins. */
  readonly languages?: readonly string[];
  /** Names in the IANA database, as registrations keep them. */
  readonly timeZones?: readonly string[];
  /** Minutes east of UTC, at the moment at which the notification is accepted. */
  readonly utcOffsets?: readonly number[];
  readonly platforms?: readonly Platform[];
}

/** A user, and the values of the names that the texts hold. */
export interface PersonalRecipient {
  readonly user: string;
  readonly variables: Readonly<Record<string, string>>;
}

/**
 * A device is in if its user is one of `users` or `personal`, a filter of `anyOf` matches it, or `everybody` is true. It
 * is out if a filter of `except` matches it or its user is one of `exceptUsers`. Where `personal` has users, every
 * other member is empty. Each id is there once in its list.
 */
export interface Audience {
  readonly users: readonly string[];
  readonly personal: readonly PersonalRecipient[];
  readonly anyOf: readonly DeviceFilter[];
  readonly except: readonly DeviceFilter[];
  readonly exceptUsers: readonly string[];
  readonly everybody: boolean;
}

/** What an audience says of devices, which is stored with the notification. */
export type FilteredAudience = Pick<Audience, "anyOf" | "except" | "everybody">;

/** Whether a value that was stored is one. Its members were checked before that. */
export const isFilteredAudience = (value: unknown): value is FilteredAudience =>
  typeof value === "object" &&
  value !== null &&
  "anyOf" in value &&
  "except" in value &&
  "everybody" in value;

/** The audience that nobody is in. */
export const nobody: Audience = {
  users: [],
  personal: [],
  anyOf: [],
  except: [],
  exceptUsers: [],
  everybody: false,
};

/** The users that it is for by name, with their variables; null: they have none. Who is also excluded is excluded. */
export function includedUsers({ users, personal, exceptUsers }: Audience) {
  const excluded = new Set(exceptUsers);
  const plain = users.filter((user) => !excluded.has(user)).map((user) => ({ user, variables: null }));
  return [...plain, ...personal];
}

/** What kind of audience it is: USERS if its recipients are all named, so that no device has to be looked for. */
export function kindOf({ anyOf, everybody }: Audience): AudienceKind {
  if (everybody) return "EVERYBODY";
  return anyOf.length === 0 ? "USERS" : "FILTERS";
}
