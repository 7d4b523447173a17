/** The push providers as operators see them, and the decisions that operators make about them. */
import { count, inArray, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { providerNotFound } from "../errors.ts";
import type { ProviderName } from "../provider-settings.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { deadReports } from "../removals-schema.ts";
import { providerStates } from "../schema.ts";
import { endPauses } from "./provider-pauses.ts";
import { decideRemovals } from "./removal-stop.ts";

interface ServiceStatus {
  readonly state: "OPEN" | "UNAVAILABLE" | "REFUSED" | "PROBING";
  /** The response for which the service is paused; null if the state is OPEN. */
  readonly reason: string | null;
  /** When the state last changed: ISO 8601, UTC, with milliseconds. */
  readonly since: string;
  /** When the pause ends: ISO 8601, UTC, with milliseconds; null if there is no pause. */
  readonly pausedUntil: string | null;
}

export interface ProviderStatus extends Omit<ServiceStatus, "since"> {
  readonly provider: ProviderName;
  /** Null if the provider was never paused. */
  readonly since: string | null;
  /** Services of the provider that were paused before. */
  readonly origins: readonly ({ readonly origin: string } & ServiceStatus)[];
  readonly removals: {
    /** Since when no dead token is removed; null if they are. */
    readonly heldSince: string | null;
    /** Tokens that wait for their removal. */
    readonly waiting: number;
  };
}

export type ProviderControl = ReturnType<typeof createProviderControl>;

/**
 * The operations of operators on providers. Each but `list` throws ServiceError `not_found` for a provider that is not
 * in use. Each can be repeated.
 */
export function createProviderControl({
  db,
  wakeUps,
  providers,
}: {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  /** The providers in use. */
  readonly providers: readonly ProviderName[];
}) {
  async function list(): Promise<ProviderStatus[]> {
    // The database's clock decides, as wherever a pause counts.
    const isPaused = sql`coalesce(${providerStates.pausedUntil} > now(), false)`.mapWith(Boolean);
    const { provider: of, state } = deadReports;
    const [services, reports] = await Promise.all([
      db.select({ row: providerStates, isPaused }).from(providerStates).orderBy(providerStates.service),
      db
        .select({ of, waiting: count() })
        .from(deadReports)
        .where(inArray(state, ["WAITING", "CONFIRMED"]))
        .groupBy(of),
    ]);
    return providers.map((provider) => {
      const own = services.filter(({ row }) => row.provider === provider);
      const whole = own.find(({ row }) => row.service === wholeProvider);
      const origins = own.filter((service) => service !== whole);
      return {
        provider,
        ...(whole ? statusOf(whole) : { state: "OPEN", reason: null, since: null, pausedUntil: null }),
        origins: origins.map((service) => ({ origin: service.row.service, ...statusOf(service) })),
        removals: {
          heldSince: whole?.row.removalsHeldAt?.toISOString() ?? null,
          waiting: reports.find(({ of }) => of === provider)?.waiting ?? 0,
        },
      };
    });
  }

  async function changed(name: ProviderName, change: () => Promise<unknown>): Promise<ProviderStatus> {
    if (!providers.includes(name)) throw providerNotFound();
    await change();
    const status = (await list()).find((one) => one.provider === name);
    if (!status) throw providerNotFound();
    return status;
  }

  return {
    /** The providers in use, in the order of the settings. */
    list,
    /** Ends the pause of a provider, or of one of its services. */
    resume: (name: ProviderName, origin: string | undefined) =>
      changed(name, async () => {
        await endPauses(db, name, origin);
        wakeUps.wake("chunks");
      }),
    /** Confirms or discards the removals that wait. */
    decideRemovals: (name: ProviderName, decision: "confirm" | "discard") =>
      changed(name, () => decideRemovals(db, name, decision)),
  };
}

interface Service {
  readonly row: typeof providerStates.$inferSelect;
  readonly isPaused: boolean;
}

function statusOf({ row, isPaused }: Service): ServiceStatus {
  const { cause, reason } = row;
  const since = row.since.toISOString();
  if (cause === null) return { state: "OPEN", reason: null, since, pausedUntil: null };
  if (!isPaused) return { state: "PROBING", reason, since, pausedUntil: null };
  const state = cause === "unavailable" ? "UNAVAILABLE" : "REFUSED";
  return { state, reason, since, pausedUntil: row.pausedUntil?.toISOString() ?? null };
}
