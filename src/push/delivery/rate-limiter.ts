/**
 * The rate limiter of one provider, shared by all processes through the provider's row in `provider_states`: how many
 * messages may be sent and when. Times are the database's, so that processes agree even if their clocks differ.
 */
import { and, lt, type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names, number } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { isWholeProvider, wholeProvider } from "../queue/provider-rows.ts";
import { providerStates } from "../schema.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { insertProviderState } from "./provider-pauses.ts";

/** Messages that may be sent, evenly from `startMs` to `endMs` from now. */
export interface Reservation {
  readonly messages: number;
  readonly startMs: number;
  readonly endMs: number;
}

const columns = names(providerStates);
const p = names(providerStates, "p");

/** The farthest end of a reservation. A row with a later end was written before the database's clock was set back. */
const maxReservationAhead = sql`interval '60 seconds'`;

interface Dependencies {
  readonly db: Database;
  readonly provider: ProviderName;
  /** Messages a second over all processes; 0: no limit. */
  readonly maxPerSecond: number;
  /** Seconds in which a notification's rate rises to the full rate. */
  readonly rampSeconds: number;
  readonly rules: DeliveryRules;
}

export class ProviderRateLimiter {
  readonly #deps: Dependencies;

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
  }

  /** Whether there is a limit. */
  get isLimited(): boolean {
    return this.#deps.maxPerSecond > 0;
  }

  /**
   * Reserves the next messages of all processes, at most as many as may be sent in `sliceMs`; without a limit, all that
   * are wanted, at once.
   * @param acceptedAt of the notification, in milliseconds since the epoch: its ramp begins there
   */
  async reserve(wanted: number, acceptedAt: number): Promise<Reservation> {
    if (!this.isLimited) return { messages: wanted, startMs: 0, endMs: 0 };
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
      messages: computed(number, messages),
      endMs: computed(number, fromNow(p.nextAt)),
      lengthMs: computed(number, lengthMs),
    });
    // The clock is read once the row is locked: the time that has passed during the wait for the lock is lost.
    const held = sql`select from ${providerStates} where ${isWholeProvider(columns, provider)} for update`;
    const reservedUntil = sql`
      case when ${p.nextAt} > t.at + ${maxReservationAhead} then t.at else greatest(${p.nextAt}, t.at) end`;
    // Text, as the builder cannot update from a row that the statement locks.
    const statement = sql`
      update ${providerStates} p
      set ${columns.nextAt} = ${reservedUntil} + make_interval(secs => ${lengthMs} / 1000)
      from (select clock_timestamp() as at from (${held}) held) t
      where ${isWholeProvider(p, provider)}
      returning ${reserved}`;
    let [next] = await rows(db, reserved, statement);
    if (!next) {
      await insertProviderState(db, provider, wholeProvider);
      [next] = await rows(db, reserved, statement);
    }
    if (!next) throw new Error(`the row of ${provider} in provider_paces is missing`);
    return { messages: next.messages, startMs: Math.max(0, next.endMs - next.lengthMs), endMs: next.endMs };
  }

  /** Raises the provider's share of the rate limit by one step, after a chunk that went well. */
  async raiseRate(): Promise<void> {
    const { share } = providerStates;
    const raised = sql`least(1, ${share} + ${this.#deps.rules.shareStep}::real)`;
    await this.#setShare(raised, lt(share, 1));
  }

  /** Lowers the provider's share of the rate limit to half of the one with which a chunk met a quota. */
  async lowerRate(share: number): Promise<void> {
    const lowered = Math.max(this.#deps.rules.leastShare, share / 2);
    await this.#setShare(sql`least(${providerStates.share}, ${lowered}::real)`);
  }

  async #setShare(share: SQL, where?: SQL): Promise<void> {
    const { db, provider } = this.#deps;
    await db
      .update(providerStates)
      .set({ share })
      .where(and(isWholeProvider(columns, provider), where));
  }
}
