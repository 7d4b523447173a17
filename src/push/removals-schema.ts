/** The tables by which devices are removed that their provider has reported dead. */
import { sql } from "drizzle-orm";
import { bigint, bigserial, check, index, integer, text } from "drizzle-orm/pg-core";
import { instant } from "../platform/database/sql/columns.ts";
import { byteOrderedText, push } from "./schema.ts";

/**
 * Devices that a provider has reported dead. WAITING: removed after a delay, unless removals are held. CONFIRMED: to be
 * removed now. REMOVED: kept for a day, for the safety stop.
 */
export const deadReports = push.table(
  "dead_reports",
  {
    deviceId: bigint("device_id", { mode: "number" }).primaryKey(),
    provider: text("provider").notNull(),
    userId: byteOrderedText("user_id").notNull(),
    /** The time as of which the provider reports it dead. A device that was renewed since is alive. */
    asOf: instant("as_of").notNull(),
    reportedAt: instant("reported_at").notNull(),
    state: text("state").notNull(),
  },
  (table) => [
    index("dead_reports_provider").on(table.provider, table.reportedAt),
    // This index is for the removal of a user.
    index("dead_reports_user").on(table.userId),
    check("dead_reports_state", sql`${table.state} in ('WAITING', 'CONFIRMED', 'REMOVED')`),
  ],
);

/** The last responses of providers, for the safety stop: a row each time that results of a chunk are stored. */
export const providerResponses = push.table(
  "provider_responses",
  {
    id: bigserial("id", { mode: "number" }).primaryKey(),
    provider: text("provider").notNull(),
    at: instant("responded_at").notNull(),
    /** Users whose devices were accepted or reported dead. */
    userCount: integer("user_count").notNull(),
    /** Users of whom no device was accepted. */
    deadUserCount: integer("dead_user_count").notNull(),
    /** Hashes of the ids of the users with an accepted device; `dead_hashes` has those of the users without one. */
    aliveHashes: integer("alive_hashes").array().notNull().default([]),
    deadHashes: integer("dead_hashes").array().notNull().default([]),
  },
  (table) => [index("provider_responses_newest").on(table.provider, table.id)],
);
