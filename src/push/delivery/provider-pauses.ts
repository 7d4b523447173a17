/**
 * The pauses of a provider and of its services, shared by all processes, by the database's clock. No chunk of a
 * provider that is paused is taken; a pause writes only chunks that wait for one of several services.
 */
import { type SQL, sql } from "drizzle-orm";
import { confirmCommit } from "../../platform/database/confirm.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { nullable, number, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, prepared, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { endWaits } from "../queue/give-back.ts";
import { isPausedAt, wholeProvider } from "../queue/provider-rows.ts";
import { providerResponses, providerStates } from "../schema.ts";
import { causes, type Failure, type SharedState } from "./breaker.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";

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
    const count = await rowCount(
      tx,
      sql`
        update ${providerStates} set ${columns.pausedUntil} = null, ${columns.since} = clock_timestamp()
        where ${columns.provider} = ${provider} and ${columns.pausedUntil} > clock_timestamp()
          and ${service === undefined ? sql`true` : sql`${columns.service} = ${service}`}
        returning 1 as one`,
    );
    if (count === 0) await confirmCommit(tx);
    return count;
  });
  await endWaits(db, provider, "ALL");
  return ended;
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
   */
  record(service: string, { cause: why, afterMs, reason, isDoubtful }: Failure): Promise<Pause> {
    const { db, provider, rules, random } = this.#deps;
    const isService = sql`${columns.provider} = ${provider} and ${columns.service} = ${service}`;
    const missing = () => new Error(`the row of ${provider} in provider_states is missing`);
    return db.transaction(async (tx) => {
      await insertProviderState(tx, provider, service);
      const [now] = await rows(
        tx,
        current,
        sql`select ${current} from ${providerStates} where ${isService} for update`,
      );
      if (!now) throw missing();
      const isNew = now.pausedMs === 0;
      const longestMs = isDoubtful ? rules.longestDoubtMs : Number.POSITIVE_INFINITY;
      const backoff = Math.min(rules.firstPauseMs * 2 ** now.failures, rules.longestPauseMs, longestMs);
      const pauseMs = why === "unavailable" ? withJitter(backoff, random) : rules.refusedPauseMs;
      const untilMs = Math.max(now.pausedMs, afterMs, isNew ? pauseMs : 0);
      const failures = isNew ? now.failures + 1 : now.failures;
      const isSlowed = isNew && why === "unavailable";
      const share = isSlowed ? Math.max(rules.leastShare, now.share / 2) : now.share;
      const [row] = await rows(
        tx,
        current,
        sql`
          update ${providerStates}
          set ${columns.failures} = ${failures}::int, ${columns.share} = ${share}::real, ${columns.reason} = ${reason},
            ${columns.cause} = case when ${isNew}::boolean then ${why}::text else ${columns.cause} end,
            ${columns.since} = case when ${isNew}::boolean then clock_timestamp() else ${columns.since} end,
            ${columns.pausedUntil} = clock_timestamp() + make_interval(secs => ${untilMs}::float8 / 1000)
          where ${isService}
          returning ${current}`,
      );
      if (!row) throw missing();
      return { cause: why, pausedMs: untilMs, since: row.since, isNew, failures };
    });
  }

  /** Records that the service works. A pause that is still running stays. @returns whether it had failed */
  recordSuccess(service: string): Promise<boolean> {
    const isOver = sql`(${columns.pausedUntil} is null or ${columns.pausedUntil} <= clock_timestamp())`;
    return this.#reopen(sql`${columns.service} = ${service} and ${isOver}`);
  }

  /** Records that the provider responds after a silence: the chunks that wait for that may be taken. */
  async recordResponse(): Promise<void> {
    await this.#endWaits("RESPONSE");
  }

  /** Ends a refusal that a self-test shows to be over. @returns whether there was one */
  endRefusal(): Promise<boolean> {
    return this.#reopen(sql`${columns.service} = ${wholeProvider} and ${columns.cause} = 'refused'`);
  }

  async #reopen(which: SQL): Promise<boolean> {
    const { db, provider } = this.#deps;
    const changed = await rowCount(
      db,
      sql`
        update ${providerStates}
        set ${columns.failures} = 0, ${columns.pausedUntil} = null, ${columns.cause} = null,
          ${columns.reason} = null, ${columns.since} = clock_timestamp()
        where ${columns.provider} = ${provider} and ${columns.failures} > 0 and ${which}
        returning 1 as one`,
    );
    if (changed > 0) await this.#endWaits("ALL");
    return changed > 0;
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
  await db.execute(sql`
    insert into ${providerStates} (${columns.provider}, ${columns.service}, ${columns.nextAt}, ${columns.share},
      ${columns.failures})
    values (${provider}, ${service}, clock_timestamp(), 1, 0)
    on conflict (${columns.provider}, ${columns.service}) do nothing`);
}
