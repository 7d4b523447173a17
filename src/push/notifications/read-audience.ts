/** Reads whom a notification is for, as a caller wrote it, and reports what no schema can express. */
import { canonicalLanguage } from "../content/languages.ts";
import { zoneTime } from "../devices/time-zone.ts";
import { minutesOf } from "../devices/utc-offset.ts";
import type { Audience, DeviceFilter, PersonalRecipient } from "./audience.ts";
import { languageProblem, type Report, type Written } from "./read-content.ts";

/** The ids of `users` and `exceptUsers` together, at most. */
const maxUsers = 10_000;

/** An audience whose members may be absent or null, and whose filters are not canonical yet. */
export interface WrittenAudience extends Written<Omit<Audience, "personal" | "anyOf" | "except">> {
  readonly personal?: readonly (Pick<PersonalRecipient, "user"> & Written<PersonalRecipient>)[] | null;
  readonly anyOf?: readonly Written<DeviceFilter>[] | null;
  readonly except?: readonly Written<DeviceFilter>[] | null;
}

const at = "/body/audience";
const noMember = "must have at least 1 member";

/** @param now when it is accepted, in milliseconds since the epoch */
export function readAudience(written: WrittenAudience, now: number, report: Report): Audience {
  const filters = (name: "anyOf" | "except") =>
    (written[name] ?? []).map((filter, index) => readFilter(filter, `${at}/${name}/${index}`, now, report));
  const audience = {
    users: [...new Set(written.users)],
    personal: readPersonal(written.personal ?? [], report),
    anyOf: filters("anyOf"),
    except: filters("except"),
    exceptUsers: [...new Set(written.exceptUsers)],
    everybody: written.everybody ?? false,
  };
  const { users, personal, anyOf, exceptUsers, everybody } = audience;
  if (users.length + exceptUsers.length > maxUsers)
    report(`${at}/users`, `must not have more than ${maxUsers} ids, together with exceptUsers`);
  if (personal.length > 0) {
    for (const name of ["users", "anyOf", "except", "exceptUsers"] as const)
      if (audience[name].length > 0) report(`${at}/${name}`, "must be absent beside personal");
    if (everybody) report(`${at}/everybody`, "must be absent beside personal");
  } else if (users.length === 0 && anyOf.length === 0 && !everybody)
    report(at, "names nobody: it needs one of users, personal, anyOf, or everybody as true");
  return audience;
}

function readPersonal(
  written: NonNullable<WrittenAudience["personal"]>,
  report: Report,
): readonly PersonalRecipient[] {
  const known = new Set<string>();
  for (const [index, { user }] of written.entries()) {
    if (known.has(user)) report(`${at}/personal/${index}/user`, "is named before");
    known.add(user);
  }
  return written.map(({ user, variables }) => ({ user, variables: variables ?? {} }));
}

function readFilter(
  written: Written<DeviceFilter>,
  pointer: string,
  now: number,
  report: Report,
): DeviceFilter {
  /** The values of a member in their canonical form, each once. */
  function read<Value, Read>(
    name: keyof DeviceFilter,
    values: readonly Value[] | null | undefined,
    canonical: (value: Value) => Read | undefined,
    problem: string,
  ): readonly Read[] | undefined {
    if (values === null || values === undefined) return undefined;
    const known = new Set<Read>();
    for (const [index, value] of values.entries()) {
      const found = canonical(value);
      if (found === undefined) report(`${pointer}/${name}/${index}`, problem);
      else known.add(found);
    }
    return [...known];
  }
  const { languages, timeZones, utcOffsets, platforms } = written;
  const filter = {
    languages: read("languages", languages, canonicalLanguage, languageProblem),
    timeZones: read(
      "timeZones",
      timeZones,
      (name) => zoneTime(name, now)?.timeZone,
      "is not a time zone (IANA)",
    ),
    utcOffsets: read("utcOffsets", utcOffsets, minutesOf, "is not a UTC offset"),
    platforms: platforms ? [...new Set(platforms)] : undefined,
  };
  const members = Object.entries(filter).filter(([, values]) => values !== undefined);
  if (members.length === 0) report(pointer, noMember);
  return Object.fromEntries(members);
}
