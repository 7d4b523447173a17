/** How a range is planned, by what its notification is for and by its axis. */
import type { InferSelectModel } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { checked } from "../../platform/database/sql/readers.ts";
import type { notifications } from "../schema.ts";
import { isFilteredAudience } from "./audience.ts";
import { asksForOffsets } from "./device-filters.ts";
import { type EntryKind, endOfDevices, planDevices, planUsers } from "./plan-audience.ts";
import { type Planned, type PlanStep, planRange } from "./plan-range.ts";
import { endOfStep, isDense } from "./range-devices.ts";
import { type Zones, zonesAt } from "./zones.ts";

interface Planning {
  /** The last id of the first part, if the range is to be split. @param size the most devices of a step */
  end(size: number): Promise<number | undefined>;
  /** Plans all of the range. */
  plan(size: number): Promise<Planned>;
}

type PlannedNotification = Pick<
  InferSelectModel<typeof notifications>,
  "kind" | "utcOffsets" | "audience" | "history" | "acceptedAt"
>;

const filteredAudience = checked("an audience", isFilteredAudience);

/** How the history has the entries: in blocks, unless the notification only names users. */
function entriesOf({ kind, history }: PlannedNotification): EntryKind {
  if (!history) return "none";
  return kind === "USERS" || kind === "TEST" ? "rows" : "blocks";
}

/** @param zonesOf returns the zones in use, with their offsets at the time of acceptance */
export async function planningOf(
  tx: Database,
  range: PlanStep & { readonly axis: string },
  notification: PlannedNotification,
  zonesOf: (db: Database, acceptedAt: number) => Promise<Zones>,
): Promise<Planning> {
  const acceptedAt = notification.acceptedAt.getTime();
  const { utcOffsets } = notification;
  if (utcOffsets) {
    const zones = await zonesOf(tx, acceptedAt);
    const wanted = zonesAt(zones, utcOffsets);
    return {
      end: (size) => endOfStep(tx, range, wanted, size),
      async plan(size) {
        const dense = await isDense(tx, range, wanted, size);
        return planRange(tx, { ...range, utcOffsets, isDense: dense }, zones);
      },
    };
  }
  const audience = filteredAudience.read(notification.audience);
  const zones = asksForOffsets(audience) ? await zonesOf(tx, acceptedAt) : undefined;
  const step = { ...range, audience, zones, entries: entriesOf(notification) };
  return range.axis === "USERS"
    ? { end: async () => undefined, plan: () => planUsers(tx, step) }
    : { end: (size) => endOfDevices(tx, step, size), plan: () => planDevices(tx, step) };
}
