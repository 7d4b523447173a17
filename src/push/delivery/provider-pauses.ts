/**
 * The pauses of a provider and of its services, shared by all processes through their rows in `provider_paces`. Times
 * are the database's, so that processes agree even if their clocks differ. A statement that ends a pause also makes the
 * jobs due that waited for it: no job waits for a pause that is over.
 */
import { type SQL, sql } from "drizzle-orm";
import { confirmCommit } from "../../platform/database/confirm.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { nullable, number, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, prepared, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Jobs } from "../../platform/messaging/jobs.ts";
import { deliveryQueue, waitingForProvider, waitingForResponse } from "../database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { providerResponses, providerStates } from "../schema.ts";
import { causes, type Failure, type SharedState } from "./breaker.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";

/** The name, in `provider_paces`, of a provider that is one service, and of the row with each provider's rate. */
export const wholeProvider = "";

/** Whether a row of `provider_paces` is that of the provider as a whole. @param row the names of the row's columns */
export const isWholeProvider = (
  row: { readonly provider: SQL; readonly service: SQL },
  provider: unknown,
): SQL => sql`${row.provider} = ${provider} and ${row.service} = ${sql.raw(`'${wholeProvider}'`)}`;

const columns = names(providerStates);
const response = names(providerResponses);

/** No pause lasts longer. A row with a longer one was written before the database's clock was set back. */
const maxPause = sql`interval '1 hour'`;
const cappedPause = sql`least(coalesce(${columns.pausedUntil}, clock_timestamp()), clock_timestamp() + ${maxPause})`;
const pausedMs = computed(
  number,
  sql`greatest(0, extract(epoch from ${cappedPause} - clock_timestamp()) * 1000)::float8`,
);
const cause = computed(nullable(oneOf(causes)), columns.cause);
const since = computed(text, sql`${columns.since}::text`);

const shared = selection({ service: columns.service, cause, pausedMs, since });
const current = selection({ failures: columns.failures, share: columns.share, pausedMs, since });
const remaining = selection({ service: columns.service, pausedMs });

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

/** Shortens a pause that is longer than the longest one. Called wherever a pause keeps a chunk from being sent. */
export async function shortenPause(db: Database, provider: ProviderName): Promise<void> {
  await db.execute(sql`
    update ${providerStates} set ${columns.pausedUntil} = now() + ${maxPause}
    where ${columns.provider} = ${provider} and ${columns.pausedUntil} > now() + ${maxPause}`);
}

/**
 * Milliseconds until the first of the services is no longer paused. Until the transaction ends, no pause of them ends
 * elsewhere: the process that ends a pause afterwards sees a job that is enqueued in it, and makes the job due.
 * @param lock `write`: the transaction also writes the provider's row. Two transactions that shared it could not
 */
export async function lockPauses(
  tx: Database,
  provider: ProviderName,
  services: readonly string[],
  lock: "share" | "write",
): Promise<number> {
  const isWrite = lock === "write";
  const locked = arrayLiteral(isWrite ? [wholeProvider, ...services] : services);
  const found = await rows(
    tx,
    remaining,
    sql`
      select ${remaining} from ${providerStates}
      where ${columns.provider} = ${provider} and ${columns.service} = any(${locked}::text[])
      order by ${columns.service} ${isWrite ? sql`for no key update` : sql`for share`}`,
  );
  const byService = new Map(found.map((row) => [row.service, row.pausedMs]));
  return Math.min(...services.map((service) => byService.get(service) ?? 0));
}

/** Makes the jobs due that wait for a pause of the provider, or for a response of it. */
async function releaseWaiting(
  tx: Database,
  jobs: Pick<Jobs, "makeDue">,
  provider: ProviderName,
): Promise<void> {
  for (const waits of [waitingForProvider, waitingForResponse])
    await jobs.makeDue(tx, deliveryQueue(provider), waits);
}

/**
 * Ends the pauses of a provider, or of one of its services: the jobs that wait are due at once, and their first
 * messages show whether the service works. @returns how many were paused
 */
export function endPauses(
  db: Database,
  jobs: Pick<Jobs, "makeDue">,
  provider: ProviderName,
  service?: string,
): Promise<number> {
  return db.transaction(async (tx) => {
    const ended = await rowCount(
      tx,
      sql`
        update ${providerStates} set ${columns.pausedUntil} = null, ${columns.since} = clock_timestamp()
        where ${columns.provider} = ${provider} and ${columns.pausedUntil} > clock_timestamp()
          and ${service === undefined ? sql`true` : sql`${columns.service} = ${service}`}
        returning 1 as one`,
    );
    if (ended === 0) await confirmCommit(tx);
    await releaseWaiting(tx, jobs, provider);
    return ended;
  });
}

/** The pause to which a failure led. */
interface Pause extends SharedState {
  /** Whether the service was not paused before. Only such a failure is logged. */
  readonly isNew: boolean;
  readonly failures: number;
}

interface Dependencies {
  readonly db: Database;
  readonly jobs: Pick<Jobs, "makeDue">;
  readonly provider: ProviderName;
  readonly rules: DeliveryRules;
  readonly random: Random;
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
   * Pauses a service for all processes. With each failure in a row a service is paused for longer, though not for long
   * if only one user's messages fail, and gets a lower rate afterwards. A message that fails during a pause was sent
   * before it, so it only prolongs the pause, if the provider wants a longer one.
   */
  record(service: string, { cause: why, afterMs, reason, isDoubtful }: Failure): Promise<Pause> {
    const { db, provider, rules, random } = this.#deps;
    const isService = sql`${columns.provider} = ${provider} and ${columns.service} = ${service}`;
    const missing = () => new Error(`the row of ${provider} in provider_paces is missing`);
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

  /** Records that the provider responds after a silence: the jobs that wait for that are due at once. */
  recordResponse(): Promise<void> {
    const { db, jobs, provider } = this.#deps;
    return jobs.makeDue(db, deliveryQueue(provider), waitingForResponse);
  }

  /** Ends a refusal that a self-test shows to be over. @returns whether there was one */
  endRefusal(): Promise<boolean> {
    return this.#reopen(sql`${columns.service} = ${wholeProvider} and ${columns.cause} = 'refused'`);
  }

  #reopen(which: SQL): Promise<boolean> {
    const { db, jobs, provider } = this.#deps;
    return db.transaction(async (tx) => {
      const changed = await rowCount(
        tx,
        sql`
          update ${providerStates}
          set ${columns.failures} = 0, ${columns.pausedUntil} = null, ${columns.cause} = null,
            ${columns.reason} = null, ${columns.since} = clock_timestamp()
          where ${columns.provider} = ${provider} and ${columns.failures} > 0 and ${which}
          returning 1 as one`,
      );
      if (changed > 0) await releaseWaiting(tx, jobs, provider);
      return changed > 0;
    });
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
