/**
 * The rate limiter of one provider, shared by all processes through the provider's row in `provider_paces`: how many
 * messages may be sent and when, and whether sending is paused. Times are the database's, so that processes agree
 * even if their clocks differ.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { nullable, number } from "../../platform/database/readers.ts";
import {
  computed,
  type Fields,
  type RowOf,
  rowCount,
  rows,
  type Selection,
  selection,
} from "../../platform/database/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { providerPaces } from "../schema.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";

/** Messages that may be sent, evenly from `startMs` to `endMs` from now; or for how long none may be sent. */
export type Reservation =
  | { readonly messages: number; readonly startMs: number; readonly endMs: number }
  | { readonly pausedMs: number };

const columns = names(providerPaces);
const p = names(providerPaces, "p");

/**
 * No reservation reaches farther ahead, and no pause lasts longer, than these. A row with more was written
 * before the database's clock was set back.
 */
const maxReservationAhead = sql`interval '60 seconds'`;
const maxPause = sql`interval '1 hour'`;

/** `pausedUntil`, limited to the longest pause from `at` on; null stays null. */
const cappedPause = (pausedUntil: SQL, at: SQL) =>
  sql`case when ${pausedUntil} > ${at} + ${maxPause} then ${at} + ${maxPause} else ${pausedUntil} end`;

const remainingPause = sql`${cappedPause(columns.pausedUntil, sql`clock_timestamp()`)} - clock_timestamp()`;
const current = selection({
  failures: columns.failures,
  share: columns.share,
  pausedMs: computed(nullable(number), sql`(extract(epoch from ${remainingPause}) * 1000)::float8`),
});

/** Shortens a pause that is longer than the longest one. Called wherever a pause keeps a chunk from being sent. */
export async function shortenPause(db: Database, provider: ProviderName): Promise<void> {
  await db.execute(sql`
    update ${providerPaces} set ${columns.pausedUntil} = now() + ${maxPause}
    where ${columns.provider} = ${provider} and ${columns.pausedUntil} > now() + ${maxPause}`);
}

/** The pause that a failure led to. */
interface Pause {
  /** Milliseconds from now. */
  readonly pausedMs: number;
  /** Whether the provider was not paused before. Only such a failure is logged. */
  readonly isNew: boolean;
  readonly failures: number;
}

interface Dependencies {
  readonly db: Database;
  readonly provider: ProviderName;
  /** Messages a second over all processes; 0: no limit. */
  readonly maxPerSecond: number;
  /** Seconds in which a notification's rate rises to the full rate. */
  readonly rampSeconds: number;
  readonly rules: DeliveryRules;
  readonly random: Random;
}

export class ProviderRateLimiter {
  readonly #deps: Dependencies;

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
  }

  /** Whether messages have to be reserved. */
  get isLimited(): boolean {
    return this.#deps.maxPerSecond > 0;
  }

  /**
   * Reserves the next messages of all processes, at most as many as may be sent in `sliceMs`.
   * @param acceptedAt of the notification, in milliseconds since the epoch: its ramp begins there
   */
  async reserve(wanted: number, acceptedAt: number): Promise<Reservation> {
    const { db, provider, maxPerSecond, rampSeconds, rules } = this.#deps;
    const ramp =
      rampSeconds === 0
        ? sql`1::float8`
        : sql`greatest(${rules.rampFloor}::float8,
            least(1, (extract(epoch from t.at)::float8 - ${acceptedAt / 1000}::float8) / ${rampSeconds}::float8))`;
    // At least one message a second, if `maxPerSecond` allows that.
    const rate = sql`greatest(${Math.min(1, maxPerSecond)}::float8, ${maxPerSecond}::float8 * ${p.share} * ${ramp})`;
    const messages = sql`least(${wanted}::float8, greatest(1, floor(${rate} * ${rules.sliceMs / 1000}::float8)))`;
    const lengthMs = sql`ceil(${messages} / ${rate} * 1000)`;
    const fromNow = (moment: SQL) => sql`(extract(epoch from ${moment} - t.at) * 1000)::float8`;
    const reserved = selection({
      pausedMs: computed(nullable(number), fromNow(p.pausedUntil)),
      messages: computed(number, messages),
      endMs: computed(number, fromNow(p.nextAt)),
      lengthMs: computed(number, lengthMs),
    });
    const { pausedMs, ...next } = await this.#row(
      db,
      reserved,
      sql`
        update ${providerPaces} p
        set ${columns.nextAt} = case
            when ${p.pausedUntil} > t.at then ${p.nextAt}
            when ${p.nextAt} > t.at + ${maxReservationAhead} then t.at + make_interval(secs => ${lengthMs} / 1000)
            else greatest(${p.nextAt}, t.at) + make_interval(secs => ${lengthMs} / 1000) end,
          ${columns.pausedUntil} = ${cappedPause(p.pausedUntil, sql`t.at`)}
        from (select clock_timestamp() as at) t
        where ${p.provider} = ${provider}
        returning ${reserved}`,
    );
    if (pausedMs !== null && pausedMs > 0) return { pausedMs };
    return { messages: next.messages, startMs: Math.max(0, next.endMs - next.lengthMs), endMs: next.endMs };
  }

  /**
   * Pauses an unavailable or overloaded provider for all processes: longer with each failure in a row, and with a
   * lower rate afterwards. A message that fails during a pause was sent before it, so it only prolongs the pause, if
   * the provider wants a longer one.
   * @param afterMs the wait that the provider wants, in milliseconds; 0 if none
   */
  recordFailure(afterMs: number, reason: string): Promise<Pause> {
    const { rules, random } = this.#deps;
    return this.#pause(reason, (paused, failures, share) => ({
      failures: paused ? failures : failures + 1,
      share: paused ? share : Math.max(rules.leastShare, share / 2),
      forMs: paused
        ? afterMs
        : Math.max(
            afterMs,
            withJitter(Math.min(rules.firstPauseMs * 2 ** failures, rules.longestPauseMs), random),
          ),
    }));
  }

  /** Pauses a provider that refuses our credentials or project, for all processes; a probe comes first afterwards. */
  recordRefusal(reason: string): Promise<Pause> {
    const { refusedPauseMs } = this.#deps.rules;
    return this.#pause(reason, (_paused, failures, share) => ({
      failures: Math.max(1, failures),
      share,
      forMs: refusedPauseMs,
    }));
  }

  /** Records that the provider works. A pause that is still running stays. @returns whether the provider had failed */
  async recordSuccess(): Promise<boolean> {
    const { db, provider } = this.#deps;
    const changed = await rowCount(
      db,
      sql`
        update ${providerPaces} set ${columns.failures} = 0, ${columns.pausedUntil} = null, ${columns.reason} = null
        where ${columns.provider} = ${provider} and ${columns.failures} > 0
          and (${columns.pausedUntil} is null or ${columns.pausedUntil} <= clock_timestamp())
        returning 1 as one`,
    );
    return changed > 0;
  }

  /** Raises the provider's share of the rate limit by one step, after a chunk that went well. */
  async raiseRate(): Promise<void> {
    const { db, provider, rules } = this.#deps;
    await db.execute(sql`
      update ${providerPaces} set ${columns.share} = least(1, ${columns.share} + ${rules.shareStep}::real)
      where ${columns.provider} = ${provider} and ${columns.share} < 1`);
  }

  #pause(
    reason: string,
    decide: (
      paused: boolean,
      failures: number,
      share: number,
    ) => { failures: number; share: number; forMs: number },
  ): Promise<Pause> {
    const { db, provider } = this.#deps;
    return db.transaction(async (tx) => {
      const now = await this.#row(
        tx,
        current,
        sql`select ${current} from ${providerPaces} where ${columns.provider} = ${provider} for update`,
      );
      const pausedMs = now.pausedMs ?? 0;
      const { failures, share, forMs } = decide(pausedMs > 0, now.failures, now.share);
      const untilMs = Math.max(pausedMs, forMs);
      await tx.execute(sql`
        update ${providerPaces}
        set ${columns.failures} = ${failures}::int, ${columns.share} = ${share}::real, ${columns.reason} = ${reason},
          ${columns.pausedUntil} = clock_timestamp() + make_interval(secs => ${untilMs}::float8 / 1000)
        where ${columns.provider} = ${provider}`);
      return { pausedMs: untilMs, isNew: pausedMs <= 0, failures };
    });
  }

  /** The row that the statement returns. Inserts the provider's row if there is none yet. */
  async #row<F extends Fields>(db: Database, selected: Selection<F>, statement: SQL): Promise<RowOf<F>> {
    const [row] = await rows(db, selected, statement);
    if (row) return row;
    await db.execute(sql`
      insert into ${providerPaces} (${columns.provider}, ${columns.nextAt}, ${columns.share}, ${columns.failures})
      values (${this.#deps.provider}, clock_timestamp(), 1, 0) on conflict (${columns.provider}) do nothing`);
    const [made] = await rows(db, selected, statement);
    if (!made) throw new Error(`the row of ${this.#deps.provider} in provider_paces is missing`);
    return made;
  }
}
