/** The push providers as operators see them, and the decisions that operators make about them. */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean, integer, nullable, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, isoTime, rows, selection } from "../../platform/database/sql/statements.ts";
import { providerNotFound } from "../errors.ts";
import { type ProviderName, providerNames } from "../provider-settings.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { deadReports, providerStates } from "../schema.ts";
import { causes } from "./breaker.ts";
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

/**
 * The operations of operators on providers. Each but `list` throws ServiceError `not_found` for a provider that is not
 * in use. Each can be repeated.
 */
export interface ProviderControl {
  /** The providers in use, in the order of the settings. */
  list(): Promise<ProviderStatus[]>;
  /** Ends the pause of a provider, or of one of its services. */
  resume(provider: ProviderName, origin: string | undefined): Promise<ProviderStatus>;
  /** Confirms or discards the removals that wait. */
  decideRemovals(provider: ProviderName, decision: "confirm" | "discard"): Promise<ProviderStatus>;
}

const providerState = names(providerStates);
const report = names(deadReports);
const provider = oneOf(providerNames);

const row = selection({
  provider: computed(provider, providerState.provider),
  service: providerState.service,
  cause: computed(nullable(oneOf(causes)), providerState.cause),
  reason: providerState.reason,
  since: computed(text, isoTime(providerState.since)),
  isPaused: computed(boolean, sql`coalesce(${providerState.pausedUntil} > now(), false)`),
  pausedUntil: computed(nullable(text), isoTime(providerState.pausedUntil)),
  heldSince: computed(nullable(text), isoTime(providerState.removalsHeldAt)),
});
const waiting = selection({
  provider: computed(provider, report.provider),
  count: computed(integer, sql`count(*)::int`),
});

export function createProviderControl({
  db,
  wakeUps,
  providers,
}: {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  /** The providers in use. */
  readonly providers: readonly ProviderName[];
}): ProviderControl {
  async function list(): Promise<ProviderStatus[]> {
    const [found, reports] = await Promise.all([
      rows(db, row, sql`select ${row} from ${providerStates} order by ${providerState.service}`),
      rows(
        db,
        waiting,
        sql`
          select ${waiting} from ${deadReports}
          where ${report.state} in ('WAITING', 'CONFIRMED') group by ${report.provider}`,
      ),
    ]);
    return providers.map((name) => {
      const own = found.filter((one) => one.provider === name);
      const whole = own.find(({ service }) => service === wholeProvider);
      return {
        provider: name,
        ...(whole ? statusOf(whole) : { state: "OPEN", reason: null, pausedUntil: null }),
        since: whole?.since ?? null,
        origins: own
          .filter(({ service }) => service !== wholeProvider)
          .map((one) => ({ origin: one.service, ...statusOf(one) })),
        removals: {
          heldSince: whole?.heldSince ?? null,
          waiting: reports.find((one) => one.provider === name)?.count ?? 0,
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
    list,
    resume: (name, origin) =>
      changed(name, async () => {
        await endPauses(db, name, origin);
        wakeUps.wake("returned", "chunks");
      }),
    decideRemovals: (name, decision) => changed(name, () => decideRemovals(db, name, decision)),
  };
}

function statusOf({
  cause,
  reason,
  since,
  isPaused,
  pausedUntil,
}: {
  readonly cause: (typeof causes)[number] | null;
  readonly reason: string | null;
  readonly since: string;
  readonly isPaused: boolean;
  readonly pausedUntil: string | null;
}): ServiceStatus {
  if (cause === null) return { state: "OPEN", reason: null, since, pausedUntil: null };
  if (!isPaused) return { state: "PROBING", reason, since, pausedUntil: null };
  return { state: cause === "unavailable" ? "UNAVAILABLE" : "REFUSED", reason, since, pausedUntil };
}
