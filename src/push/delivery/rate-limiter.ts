/**
 * The pace of one provider, shared by the whole fleet through its row in `provider_paces`: how many messages
 * may go out when, and whether any may. Times are the database's, so that machines with wrong clocks agree.
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

/** Messages that may go out, evenly from `startMs` to `endMs` from now; or how long none may. */
export type Reservation =
  | { readonly messages: number; readonly startMs: number; readonly endMs: number }
  | { readonly pausedMs: number };

const pace = names(providerPaces);
const p = names(providerPaces, "p");

/**
 * What reservations in hand never reach ahead, and a pause never lasts: a row that says more was written before the
 * database's clock stepped back.
 */
const farthestReservation = sql`interval '60 seconds'`;
const longestPause = sql`interval '1 hour'`;

/** `pausedUntil`, as far ahead of the moment as it can have been meant; null stays null. */
const plausible = (pausedUntil: SQL, at: SQL) =>
  sql`case when ${pausedUntil} > ${at} + ${longestPause} then ${at} + ${longestPause} else ${pausedUntil} end`;

const untilNow = sql`${plausible(pace.pausedUntil, sql`clock_timestamp()`)} - clock_timestamp()`;
const current = selection({
  failures: pace.failures,
  share: pace.share,
  pausedMs: computed(nullable(number), sql`(extract(epoch from ${untilNow}) * 1000)::float8`),
});

/** Shortens a pause that is longer than one can be. Whoever does not send because of it does this. */
export async function shortenPause(db: Database, provider: ProviderName): Promise<void> {
  await db.execute(sql`
    update ${providerPaces} set ${pace.pausedUntil} = now() + ${longestPause}
    where ${pace.provider} = ${provider} and ${pace.pausedUntil} > now() + ${longestPause}`);
}

/** What a failure came to. */
interface Pause {
  /** Milliseconds from now. */
  readonly pausedMs: number;
  /** Whether the provider was not paused before, so that this failure is the one to tell of. */
  readonly isNew: boolean;
  readonly failures: number;
}

interface Dependencies {
  readonly db: Database;
  readonly provider: ProviderName;
  /** Messages a second over the whole fleet; 0: as fast as the provider takes them. */
  readonly maxPerSecond: number;
  /** Seconds in which a notification comes to its full pace. */
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
   * Reserves the next messages of the fleet, at most a slice of time full of them.
   * @param acceptedAt of the notification, in milliseconds since the epoch: where its ramp begins
   */
  async reserve(wanted: number, acceptedAt: number): Promise<Reservation> {
    const { db, provider, maxPerSecond, rampSeconds, rules } = this.#deps;
    const ramp =
      rampSeconds === 0
        ? sql`1::float8`
        : sql`greatest(${rules.rampFloor}::float8,
            least(1, (extract(epoch from t.at)::float8 - ${acceptedAt / 1000}::float8) / ${rampSeconds}::float8))`;
    // However slow: one message a second, if the ceiling allows that.
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
        set ${pace.nextAt} = case
            when ${p.pausedUntil} > t.at then ${p.nextAt}
            when ${p.nextAt} > t.at + ${farthestReservation} then t.at + make_interval(secs => ${lengthMs} / 1000)
            else greatest(${p.nextAt}, t.at) + make_interval(secs => ${lengthMs} / 1000) end,
          ${pace.pausedUntil} = ${plausible(p.pausedUntil, sql`t.at`)}
        from (select clock_timestamp() as at) t
        where ${p.provider} = ${provider}
        returning ${reserved}`,
    );
    if (pausedMs !== null && pausedMs > 0) return { pausedMs };
    return { messages: next.messages, startMs: Math.max(0, next.endMs - next.lengthMs), endMs: next.endMs };
  }

  /**
   * The provider is away or overloaded: nobody sends for a while, the longer the more often it happens, and
   * slower afterwards. What fails while it is paused was on its way before, and only prolongs the pause if the
   * provider asks for that.
   * @param afterMs what it asked for
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

  /** The provider refuses us: nobody sends for a while, and then a probe first. */
  recordRefusal(reason: string): Promise<Pause> {
    const { refusedPauseMs } = this.#deps.rules;
    return this.#pause(reason, (_paused, failures, share) => ({
      failures: Math.max(1, failures),
      share,
      forMs: refusedPauseMs,
    }));
  }

  /** The provider works. A pause that somebody else has just found necessary stays. @returns whether it had failed */
  async recordSuccess(): Promise<boolean> {
    const { db, provider } = this.#deps;
    const changed = await rowCount(
      db,
      sql`
        update ${providerPaces} set ${pace.failures} = 0, ${pace.pausedUntil} = null, ${pace.reason} = null
        where ${pace.provider} = ${provider} and ${pace.failures} > 0
          and (${pace.pausedUntil} is null or ${pace.pausedUntil} <= clock_timestamp())
        returning 1 as one`,
    );
    return changed > 0;
  }

  /** A chunk went well: a little faster again. */
  async raiseRate(): Promise<void> {
    const { db, provider, rules } = this.#deps;
    await db.execute(sql`
      update ${providerPaces} set ${pace.share} = least(1, ${pace.share} + ${rules.shareStep}::real)
      where ${pace.provider} = ${provider} and ${pace.share} < 1`);
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
        sql`select ${current} from ${providerPaces} where ${pace.provider} = ${provider} for update`,
      );
      const pausedMs = now.pausedMs ?? 0;
      const { failures, share, forMs } = decide(pausedMs > 0, now.failures, now.share);
      const untilMs = Math.max(pausedMs, forMs);
      await tx.execute(sql`
        update ${providerPaces}
        set ${pace.failures} = ${failures}::int, ${pace.share} = ${share}::real, ${pace.reason} = ${reason},
          ${pace.pausedUntil} = clock_timestamp() + make_interval(secs => ${untilMs}::float8 / 1000)
        where ${pace.provider} = ${provider}`);
      return { pausedMs: untilMs, isNew: pausedMs <= 0, failures };
    });
  }

  /** The row that the statement answers; the provider's own is made if there is none yet. */
  async #row<F extends Fields>(db: Database, selected: Selection<F>, statement: SQL): Promise<RowOf<F>> {
    const [row] = await rows(db, selected, statement);
    if (row) return row;
    await db.execute(sql`
      insert into ${providerPaces} (${pace.provider}, ${pace.nextAt}, ${pace.share}, ${pace.failures})
      values (${this.#deps.provider}, clock_timestamp(), 1, 0) on conflict (${pace.provider}) do nothing`);
    const [made] = await rows(db, selected, statement);
    if (!made) throw new Error(`the pace of ${this.#deps.provider} has gone`);
    return made;
  }
}
