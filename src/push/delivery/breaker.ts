/**
 * The state of one service, as this process knows it: a provider, or for Web Push one of its origins. A breaker decides
 * from the outcomes of all chunks when the service is to be paused and when it has recovered. Nothing here waits or
 * stores; `service-states.ts` shares what is decided with the other processes.
 */
import { quotaMs } from "../providers/outcomes.ts";
import type { Outcome } from "../providers/provider.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { RefusalJudge } from "./refusal-judge.ts";

/**
 * `working`: messages are sent. `paused`: no message is sent. `probing`: a few messages are sent, to find out whether
 * the service has recovered.
 */
export type State = "working" | "paused" | "probing";

/**
 * Why a service is paused. `unavailable`: it fails, or a quota is used up for several users. `refused`: it refuses our
 * credentials, project or topic. `foreign`: it takes the tokens of most users for somebody else's.
 */
export type Cause = (typeof causes)[number];
export const causes = ["unavailable", "refused", "foreign"] as const;

/** A reason to pause the service. */
export interface Failure {
  readonly cause: Cause;
  /** The longest wait that the provider wanted in a streak of failures, in milliseconds up to an hour; 0 if none. */
  readonly afterMs: number;
  readonly reason: string;
  /** Only one user's messages have failed since the service's last response, so that user's device may be the cause. */
  readonly isDoubtful?: boolean;
}

/** What is known of a message that was sent. It decides what the message's failure says about the service. */
export interface Sent {
  /** When it was sent, on the clock of `now`. */
  readonly at: number;
  /** Whether the same message has failed before. */
  readonly hasFailedBefore: boolean;
}

/** The state of a service that all processes share. */
export interface SharedState {
  /** Undefined: the service works. */
  readonly cause: Cause | undefined;
  /** Milliseconds that are left of the pause; 0: it is over. */
  readonly pausedMs: number;
  /** When the state last changed; only compared. */
  readonly since: string;
}

/** Users of a streak that are remembered; more of them show nothing more. */
const maxStreakUsers = 1_000;
/** Milliseconds of a wanted wait that count at most, as a single response can want it. Then a probe asks again. */
const maxWaitMs = 3_600_000;

const noProbes = () => ({ admitted: 0, failed: 0, throttled: new Set<string>() });

type Rules = Pick<DeliveryRules, "retriesInARow" | "firstPauseMs" | "probeMessages" | "evidenceMs">;

export class Breaker {
  readonly #rules: Rules;
  readonly #judge = new RefusalJudge();
  #cause: Cause | undefined;
  #pausedUntil = 0;
  #since = "";
  /**
   * Failures without a success between them: how many, their users, and the longest wait that the provider wanted. A
   * message without a response counts once for each user, and one user alone makes no streak: so no single device
   * pauses a service that has little else to do.
   */
  readonly #streak = { length: 0, users: new Set<string>(), afterMs: 0 };
  /** Messages that were admitted and failed while probing, and the users who met a quota. */
  #probes = noProbes();
  /** When a response last showed that the service works. */
  #workedAt = Number.NEGATIVE_INFINITY;
  /** When the newest of the messages was sent to which the service has responded. */
  #newestRespondedTo = Number.NEGATIVE_INFINITY;

  constructor(rules: Rules) {
    this.#rules = rules;
  }

  /** @param now milliseconds of any clock that only goes forward; the same one in all calls */
  state(now: number): State {
    if (this.#cause === undefined) return "working";
    return now < this.#pausedUntil ? "paused" : "probing";
  }

  /** Milliseconds until the service may be probed; 0 if it is not paused. */
  pausedMs(now: number): number {
    return this.state(now) === "paused" ? this.#pausedUntil - now : 0;
  }

  /** Whether the next message may be sent. While probing, each admitted message must be reported. */
  admits(now: number): boolean {
    const state = this.state(now);
    if (state !== "probing") return state === "working";
    if (this.#probes.admitted >= this.#rules.probeMessages) return false;
    this.#probes.admitted += 1;
    return true;
  }

  /** Whether the service has shown lately that it works, so that a message's failure is the message's own. */
  isHealthy(now: number): boolean {
    return this.#cause === undefined && now - this.#workedAt <= this.#rules.evidenceMs;
  }

  /** Why the service is paused or being probed; undefined: it is not. */
  get cause(): Cause | undefined {
    return this.#cause;
  }

  /** Takes an outcome. @returns the failure for which the service is to be paused, or that it has `recovered` */
  report(outcome: Outcome, userId: string, now: number, sent: Sent): Failure | "recovered" | undefined {
    const { kind } = outcome;
    const state = this.state(now);
    // The message was sent before the pause, and is no probe: it shows nothing of the service as it is now.
    if (state === "probing" && sent.at < this.#pausedUntil) return undefined;
    if (kind === "retry" && this.#mayBeItsOwn(outcome, userId, sent, state)) return this.#ignore();
    if (kind === "retry" || kind === "unavailable") {
      // A quota may be a device's own, even among the failures of others.
      const longestMs = kind === "retry" && outcome.isThrottled ? quotaMs : maxWaitMs;
      const { reason, afterMs: wantedMs = 0 } = outcome;
      const afterMs = Math.min(wantedMs, longestMs);
      this.#streak.length += 1;
      return this.#fail({ cause: "unavailable", afterMs, reason }, userId, kind === "unavailable", now);
    }
    const isOurs = this.#judge.add(userId, kind);
    if (kind === "refused") {
      const isCertain = isOurs || outcome.isConfirmed || this.#cause === kind;
      if (!isCertain) return this.#ignore();
      return this.#fail({ cause: kind, afterMs: 0, reason: outcome.reason }, userId, true, now);
    }
    const isForeign = kind === "foreign";
    if (isForeign && this.#cause === "foreign") {
      // The service responds, but it does not show yet that it takes our users' tokens again.
      return this.#fail({ cause: kind, afterMs: 0, reason: outcome.reason }, userId, true, now);
    }
    this.#endStreak();
    this.#workedAt = now;
    this.#newestRespondedTo = Math.max(this.#newestRespondedTo, sent.at);
    if (isForeign && isOurs && state === "working") {
      return this.#pause({ cause: kind, afterMs: 0, reason: outcome.reason }, now);
    }
    if (state !== "probing") return undefined;
    this.#cause = undefined;
    return "recovered";
  }

  /**
   * Whether a failure says nothing about the service, as the message itself may be the cause.
   * - A quota that a message has met before may be its device's. So may one that only one user's probes meet, or a
   *   message that was in flight when the pause began.
   * - Of messages without a response: a service that has responded to a message sent later is there.
   * - A message that has failed before may be the cause. So may a user whose messages have failed since the service's
   *   last response. So the messages at the end of a send that never get a response stop no other send.
   * - The messages that were in flight when the service fell silent do count: it has responded to none sent later.
   * - A probe counts, whichever user's message it is: the service has responded to nobody since it was paused.
   */
  #mayBeItsOwn(
    { isOwn, isThrottled, hasNoResponse }: Extract<Outcome, { kind: "retry" }>,
    userId: string,
    { at, hasFailedBefore }: Sent,
    state: State,
  ): boolean {
    if (isOwn || (isThrottled && (hasFailedBefore || state === "paused"))) return true;
    if (isThrottled && state === "probing") return this.#probes.throttled.add(userId).size < 2;
    if (!hasNoResponse) return false;
    if (hasFailedBefore || at < this.#newestRespondedTo) return true;
    return state !== "probing" && this.#streak.users.has(userId);
  }

  /** Takes note that an outcome shows nothing: if it is a probe's, another message is admitted in its place. */
  #ignore(): undefined {
    this.#probes.admitted = Math.max(0, this.#probes.admitted - 1);
  }

  #endStreak(): void {
    this.#streak.length = 0;
    this.#streak.users.clear();
    this.#streak.afterMs = 0;
  }

  /** Whether the streak is long enough to show that the service fails. */
  get #isStreakEvidence(): boolean {
    return this.#streak.length >= this.#rules.retriesInARow && this.#streak.users.size > 1;
  }

  /** @param isCertain one such failure shows that the service fails; otherwise only a streak of them does */
  #fail(failure: Failure, userId: string, isCertain: boolean, now: number): Failure | undefined {
    const state = this.state(now);
    const streak = this.#streak;
    if (streak.users.size < maxStreakUsers) streak.users.add(userId);
    streak.afterMs = Math.max(streak.afterMs, failure.afterMs);
    const { afterMs } = streak;
    if (state === "probing") {
      this.#probes.failed += 1;
      if (this.#probes.failed < this.#probes.admitted) return undefined;
      const isDoubtful = !isCertain && streak.users.size === 1;
      return this.#pause({ ...failure, afterMs, ...(isDoubtful && { isDoubtful }) }, now);
    }
    if (failure.cause !== "unavailable") return state === "working" ? this.#pause(failure, now) : undefined;
    if (!isCertain && !this.#isStreakEvidence) return undefined;
    if (state !== "paused") return this.#pause({ ...failure, afterMs }, now);
    // A message that was in flight when the pause began can only prolong the pause. It does so by a little more than
    // the provider wants, as each longer pause is stored.
    if (now + afterMs <= this.#pausedUntil) return undefined;
    const longer = { afterMs: afterMs + this.#rules.firstPauseMs / 10 };
    return this.#pause({ ...failure, cause: this.#cause ?? failure.cause, ...longer }, now);
  }

  /** Pauses for a while, until the pause that all processes share is known. */
  #pause(failure: Failure, now: number): Failure {
    this.#cause = failure.cause;
    this.#pausedUntil = now + Math.max(failure.afterMs, this.#rules.firstPauseMs);
    this.#probes = noProbes();
    return failure;
  }

  /** Takes note of a response to another process. @param at its time, on the clock of `now` */
  respondedToOthers(at: number): void {
    this.#workedAt = Math.max(this.#workedAt, at);
  }

  /**
   * Adopts the state that all processes share. A new state is judged by the responses that come after it. Only the
   * state of a service that works also forgets the users of the streak.
   */
  adopt({ cause, pausedMs, since }: SharedState, now: number): void {
    const isSame = since === this.#since;
    // Probing began when the pause was over, and not when another chunk learns that it is.
    const isOver = isSame && pausedMs === 0 && this.state(now) === "probing";
    this.#cause = cause;
    if (!isOver) {
      this.#pausedUntil = now + pausedMs;
      this.#probes = noProbes();
    }
    if (isSame) return;
    this.#since = since;
    this.#judge.clear();
    this.#streak.length = 0;
    this.#streak.afterMs = 0;
    if (cause === undefined) this.#endStreak();
  }
}
