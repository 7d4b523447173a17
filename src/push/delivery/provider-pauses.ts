/**
 * The pauses of a provider and of its services, shared by all processes, by the database's clock. No chunk of a
 * provider that is paused is taken; a pause writes only chunks that wait for one of several services.
 */
import { and, eq, gt, isNull, lte, or, type SQL, sql } from "drizzle-orm";
import { confirmCommit } from "../../platform/database/confirm.ts";
import type { Database, Executor } from "../../platform/database/database.ts";
import { names, nullable, number, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, prepared, rows, selection } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { endWaits } from "../queue/give-back.ts";
import type { Processes } from "../queue/processes.ts";
import { isPausedAt, wholeProvider } from "../queue/provider-rows.ts";
import { providerResponses } from "../removals-schema.ts";
import { providerStates } from "../schema.ts";
import { causes, type Failure, type SharedState } from "./breaker.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";
import type { Paused } from "./pause-metrics.ts";

/** The moment of the statement, and not of its transaction. */
const now = sql`clock_timestamp()`;
const columns = names(providerStates);
const response = names(providerResponses);

const isPaused = isPausedAt(columns.pausedUntil, sql`clock_timestamp()`);
const pausedMs = computed(
  number,
  sql`case when ${isPaused} then extract(epoch from ${columns.pausedUntil} - clock_timestamp()) * 1000 else 0 end::float8`,
);
const cause = computed(nullable(oneOf(causes)), columns.cause);
const since = computed(text, sql`${columns.since}::text`);

const shared = selection({ service: columns.service, cause, pausedMs, since });
const current = selection({ failures: columns.failures, share: columns.share, pausedMs, since });

const selectShared = prepared(
  ["provider"],
  ({ provider }) => sql`select ${shared} from ${providerStates} where ${columns.provider} = ${provider}`,
);

const newestResponse = selection({
  agoMs: computed(number, sql`greatest(0, extract(epoch from now() - ${response.at}) * 1000)::float8`),
});
const selectNewestResponse = prepared(
  ["provider"],
  ({ provider }) => sql`
    select ${newestResponse} from ${providerResponses} where ${response.provider} = ${provider}
    order by ${response.id} desc limit 1`,
);

/**
 * Ends the pauses of a provider, or of one of its services. The first messages show whether the service works.
 * @returns how many were paused
 */
export async function endPauses(db: Database, provider: ProviderName, service?: string): Promise<number> {
  const ended = await db.transaction(async (tx) => {
    const found = await tx
      .update(providerStates)
      .set({ pausedUntil: null, since: now })
      .where(
        and(
          eq(providerStates.provider, provider),
          gt(providerStates.pausedUntil, now),
          service === undefined ? undefined : eq(providerStates.service, service),
        ),
      )
      .returning({ service: providerStates.service });
    if (found.length === 0) await confirmCommit(tx);
    return found.length;
  });
  await endWaits(db, provider, "ALL");
  return ended;
}

const paused = selection({ provider: columns.provider, cause: computed(text, columns.cause) });

/**
 * A pause counts for another minute, in which the provider is probed. One by a refusal counts until we are accepted or
 * an operator resumes the provider, also while there is nothing to send.
 */
const selectPaused = prepared(
  [],
  () => sql`
    select ${paused} from ${providerStates} where ${columns.cause} is not null
      and (${isPausedAt(columns.pausedUntil, sql`now() - interval '1 minute'`)}
        or ${columns.cause} <> 'unavailable' and ${columns.pausedUntil} is not null)`,
);

/** The providers that are paused for all processes, or of which a service is, each as often as there are pauses. */
export function loadPaused(db: Executor): Promise<Paused[]> {
  return rows(db, paused, selectPaused({}));
}

/** The pause to which a failure led. */
interface Pause extends SharedState {
  /** Whether the service was not paused before. Only such a failure is logged. */
  readonly isNew: boolean;
  readonly failures: number;
}

interface Dependencies {
  readonly db: Database;
  readonly provider: ProviderName;
  readonly processes: Pick<Processes, "id" | "cannotUse" | "canUse">;
  readonly rules: DeliveryRules;
  readonly random: Random;
  /** Called when chunks may be taken that have waited. */
  readonly released: () => void;
}

export class ProviderPauses {
  readonly #deps: Dependencies;

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
  }

  /** The states of the services that have a row. A service without a row works. */
  async load(): Promise<ReadonlyMap<string, SharedState>> {
    const { db, provider } = this.#deps;
    const found = await rows(db, shared, selectShared({ provider }));
    return new Map(
      found.map(({ service, ...state }) => [service, { ...state, cause: state.cause ?? undefined }]),
    );
  }

  /** Milliseconds since the last response about a user, to any process, that is stored; infinite: there was none. */
  async lastResponseAgoMs(): Promise<number> {
    const { db, provider } = this.#deps;
    const [last] = await rows(db, newestResponse, selectNewestResponse({ provider }));
    return last?.agoMs ?? Number.POSITIVE_INFINITY;
  }

  /**
   * Pauses a service for all processes: for longer with each failure in a row, though not for long if only one user's
   * messages fail, and with a lower rate afterwards. During a pause a failure only prolongs it, if the provider wants
   * so.
   * @returns undefined if it is not paused: the fault may be this process's own, as another one can use the service
   */
  async record(
    service: string,
    { cause: why, afterMs, reason, fault, isDoubtful }: Failure,
  ): Promise<Pause | undefined> {
    const { db, provider, processes, rules, random } = this.#deps;
    const processId = fault && (await processes.id());
    const isService = and(eq(providerStates.provider, provider), eq(providerStates.service, service));
    const missing = () => new Error(`the row of ${provider} in provider_states is missing`);
    return db.transaction(async (tx) => {
      await insertProviderState(tx, provider, service);
      const [before] = await rows(
        tx,
        current,
        sql`select ${current} from ${providerStates} where ${isService} for update`,
      );
      if (!before) throw missing();
      if (processId !== undefined && !(await processes.cannotUse(tx, processId, this.#nameOf(service))))
        return undefined;
      const isNew = before.pausedMs === 0;
      const longestMs = isDoubtful ? rules.longestDoubtMs : Number.POSITIVE_INFINITY;
      const backoff = Math.min(rules.firstPauseMs * 2 ** before.failures, rules.longestPauseMs, longestMs);
      const pauseMs = why === "unavailable" ? withJitter(backoff, random) : rules.refusedPauseMs;
      const untilMs = Math.max(before.pausedMs, afterMs, isNew ? pauseMs : 0);
      const failures = isNew ? before.failures + 1 : before.failures;
      const isSlowed = isNew && why === "unavailable";
      const share = isSlowed ? Math.max(rules.leastShare, before.share / 2) : before.share;
      const begun = isNew ? { cause: why, since: now } : {};
      const pausedUntil = sql`clock_timestamp() + make_interval(secs => ${untilMs}::float8 / 1000)`;
      const [row] = await tx
        .update(providerStates)
        .set({ failures, share, reason, pausedUntil, ...begun })
        .where(isService)
        .returning({ since: sql`${providerStates.since}::text`.mapWith(String) });
      if (!row) throw missing();
      return { cause: why, pausedMs: untilMs, since: row.since, isNew, failures };
    });
  }

  /** Records that this process can use the service, so that the faults of others no longer pause it for all. */
  canUse(service: string): Promise<void> {
    return this.#deps.processes.canUse(this.#nameOf(service));
  }

  #nameOf(service: string): string {
    return `${this.#deps.provider} ${service}`.trimEnd();
  }

  /** Records that the service works. A pause that is still running stays. @returns whether it had failed */
  recordSuccess(service: string): Promise<boolean> {
    const { pausedUntil } = providerStates;
    const isOver = or(isNull(pausedUntil), lte(pausedUntil, now));
    return this.#reopen(and(eq(providerStates.service, service), isOver));
  }

  /** Records that the provider responds after a silence: the chunks that wait for that may be taken. */
  async recordResponse(): Promise<void> {
    await this.#endWaits("RESPONSE");
  }

  /** Ends a refusal that a self-test shows to be over. @returns whether there was one */
  endRefusal(): Promise<boolean> {
    const { service, cause } = providerStates;
    return this.#reopen(and(eq(service, wholeProvider), eq(cause, "refused")));
  }

  async #reopen(which: SQL | undefined): Promise<boolean> {
    const { db, provider } = this.#deps;
    const { failures } = providerStates;
    const changed = await db
      .update(providerStates)
      .set({ failures: 0, pausedUntil: null, cause: null, reason: null, since: now })
      .where(and(eq(providerStates.provider, provider), gt(failures, 0), which))
      .returning({ failures });
    if (changed.length > 0) await this.#endWaits("ALL");
    return changed.length > 0;
  }

  async #endWaits(what: "RESPONSE" | "ALL"): Promise<void> {
    const { db, provider, released } = this.#deps;
    if ((await endWaits(db, provider, what)) > 0) released();
  }
}

/** Inserts the row of a service that has none. */
export async function insertProviderState(
  db: Database,
  provider: ProviderName,
  service: string,
): Promise<void> {
  const state = { provider, service, nextAt: now, share: 1, failures: 0 };
  await db.insert(providerStates).values(state).onConflictDoNothing();
}
