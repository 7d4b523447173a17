/**
 * The circuit breaker of one service, a provider or for Web Push one of its origins, as this process knows it. It
 * decides from the outcomes of all chunks when the service is paused and has recovered; service-states.ts shares that.
 */
import { quotaMs } from "../providers/outcomes.ts";
import type { Outcome } from "../providers/provider.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { type Fault, faultOf } from "./faults.ts";

/**
 * - `working`: messages are sent.
 * - `paused`: no message is sent until the pause ends. Those that were in flight when it began still have outcomes.
 * - `probing`: the pause is over, and a few messages are sent, to find out whether the service has recovered. The
 *   outcomes of messages that were sent before show nothing.
 */
export type State = "working" | "paused" | "probing";

/**
 * Why a service is paused. `unavailable`: it cannot be reached, or the messages of several users in a row failed.
 * `refused`: it refuses our credentials, project or topic. `foreign`: it takes the tokens of most users for somebody
 * else's.
 */
export type Cause = (typeof causes)[number];
export const causes = ["unavailable", "refused", "foreign"] as const;

/**
 * What an outcome shows about the service: a cause for a pause, or
 * - `nothing`: the message itself may be why it failed.
 * - `failure`: the service may be why the message failed, but the failures so far show nothing.
 * - `response`: the service works.
 */
type Evidence = Cause | "failure" | "nothing" | "response";

/**
 * - `pause`: to `paused`.
 * - `prolong`: `paused` for longer, if the provider wants a wait that ends later than the pause.
 * - `failProbe`: to `paused` with the last of the admitted probes. Until then `probing`.
 * - `replaceProbe`: `probing`, with one more message.
 * - `recover`: to `working`.
 */
type Transition = "stay" | "pause" | "prolong" | "failProbe" | "replaceProbe" | "recover";

const transitions: Readonly<Record<Evidence, Readonly<Record<State, Transition>>>> = {
  unavailable: { working: "pause", paused: "prolong", probing: "failProbe" },
  refused: { working: "pause", paused: "stay", probing: "failProbe" },
  foreign: { working: "pause", paused: "stay", probing: "failProbe" },
  failure: { working: "stay", paused: "stay", probing: "failProbe" },
  nothing: { working: "stay", paused: "stay", probing: "replaceProbe" },
  response: { working: "stay", paused: "stay", probing: "recover" },
};

/** A reason to pause the service. */
export interface Failure {
  readonly cause: Cause;
  /** The longest wait that the provider wanted in a streak of failures, in milliseconds up to an hour; 0 if none. */
  readonly afterMs: number;
  readonly reason: string;
  /** What of this process may be why; undefined: it is the provider's. */
  readonly fault?: Fault | undefined;
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

/** Failures without a response between them: how many, their users, and the longest wait that the provider wanted. */
const noStreak = (users = new Set<string>()) => ({ length: 0, users, afterMs: 0 });
/** Messages that were admitted and failed while probing, and the users who met a quota. */
const noProbes = () => ({ admitted: 0, failed: 0, throttled: new Set<string>() });

export class Breaker {
  readonly #rules: DeliveryRules;
  readonly #judge = new RefusalJudge();
  #cause: Cause | undefined;
  #pausedUntil = 0;
  #since = "";
  #streak = noStreak();
  #probes = noProbes();
  /** When a response last showed that the service works. */
  #workedAt = Number.NEGATIVE_INFINITY;
  /** When the newest of the messages was sent to which the service has responded. */
  #newestRespondedTo = Number.NEGATIVE_INFINITY;

  constructor(rules: DeliveryRules) {
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
    const state = this.state(now);
    if (state === "probing" && sent.at < this.#pausedUntil) return undefined;
    const evidence = this.#evidenceOf(outcome, userId, now, sent);
    const cause = evidence === "refused" || evidence === "foreign" ? evidence : "unavailable";
    const reason = outcome.kind === "sent" ? "" : outcome.reason;
    const fault = faultOf(outcome);
    const { afterMs, users } = this.#streak;
    switch (transitions[evidence][state]) {
      case "stay":
        return undefined;
      case "pause":
        return this.#pause({ cause, afterMs: cause === "unavailable" ? afterMs : 0, reason, fault }, now);
      case "prolong": {
        if (now + afterMs <= this.#pausedUntil) return undefined;
        // Each longer pause is stored, so it is to be long enough for the other messages in flight.
        const longerMs = afterMs + this.#rules.firstPauseMs / 10;
        return this.#pause({ cause: this.#cause ?? cause, afterMs: longerMs, reason, fault }, now);
      }
      case "failProbe": {
        this.#probes.failed += 1;
        if (this.#probes.failed < this.#probes.admitted) return undefined;
        const isDoubtful = evidence === "failure" && users.size === 1;
        return this.#pause({ cause, afterMs, reason, fault, ...(isDoubtful && { isDoubtful }) }, now);
      }
      case "replaceProbe":
        this.#probes.admitted = Math.max(0, this.#probes.admitted - 1);
        return undefined;
      case "recover":
        this.#cause = undefined;
        return "recovered";
    }
  }

  /** What an outcome shows. The outcomes that come after it are judged by it, too. */
  #evidenceOf(outcome: Outcome, userId: string, now: number, sent: Sent): Evidence {
    const { kind } = outcome;
    if (this.#showsNothing(outcome, userId, now, sent)) return "nothing";
    if (kind === "retry" || kind === "unavailable") {
      // A quota may be a device's own, even among the failures of others.
      const longestMs = kind === "retry" && outcome.isThrottled ? quotaMs : maxWaitMs;
      this.#addToStreak(userId, Math.min(outcome.afterMs ?? 0, longestMs));
      this.#streak.length += 1;
      // One user's device alone pauses no service, however little else there is to send.
      const isInARow = this.#streak.length >= this.#rules.retriesInARow && this.#streak.users.size > 1;
      return kind === "unavailable" || isInARow ? "unavailable" : "failure";
    }
    const isOurs = this.#judge.add(userId, kind);
    const isRefused = kind === "refused" && (isOurs || outcome.isConfirmed || this.#cause === kind);
    // A response, but one that does not show yet that the service takes our users' tokens again.
    if (isRefused || (kind === "foreign" && this.#cause === kind)) {
      this.#addToStreak(userId, 0);
      return kind;
    }
    if (kind === "refused") return "nothing";
    this.#streak = noStreak();
    this.#workedAt = now;
    this.#newestRespondedTo = Math.max(this.#newestRespondedTo, sent.at);
    return kind === "foreign" && isOurs && this.#cause === undefined ? kind : "response";
  }

  /** Whether an outcome shows nothing: its message was not even sent, or may have failed by itself. */
  #showsNothing(outcome: Outcome, userId: string, now: number, sent: Sent): boolean {
    if (outcome.kind === "failed") return outcome.isUnasked === true;
    return outcome.kind === "retry" && this.#mayBeItsOwn(outcome, userId, this.state(now), sent);
  }

  /**
   * Whether a failure says nothing about the service, as the message itself may be the cause.
   * - A quota that a message has met before may be its device's. So may one that only one user's probes meet, or a
   *   message that was in flight when the pause began.
   * - Of messages without a response: a service that has responded to a message sent later is there.
   * - A message that has failed before may be the cause. So may a user whose messages have failed since the service's
   *   last response, except in a probe.
   */
  #mayBeItsOwn(
    { isOwn, isThrottled, hasNoResponse }: Extract<Outcome, { kind: "retry" }>,
    userId: string,
    state: State,
    { at, hasFailedBefore }: Sent,
  ): boolean {
    if (isOwn) return true;
    if (isThrottled) {
      if (hasFailedBefore || state === "paused") return true;
      return state === "probing" && this.#probes.throttled.add(userId).size < 2;
    }
    if (!hasNoResponse) return false;
    if (hasFailedBefore || at < this.#newestRespondedTo) return true;
    return state !== "probing" && this.#streak.users.has(userId);
  }

  #addToStreak(userId: string, afterMs: number): void {
    if (this.#streak.users.size < maxStreakUsers) this.#streak.users.add(userId);
    this.#streak.afterMs = Math.max(this.#streak.afterMs, afterMs);
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
    this.#streak = noStreak(cause && this.#streak.users);
  }
}

/** Users that the judgement looks back on. */
const windowSize = 100;
/** Users that are needed for a judgement; fewer show nothing. */
const leastUsers = 50;
/** Users who are refused, without another one who is not, that are needed for a judgement. */
const severalUsers = 3;

/**
 * Judges whether it is the messages' fault or ours that a provider refuses them, or takes tokens for somebody else's.
 * Each user counts once: it is ours only if the tokens of most of many users are foreign, or several users in a row are
 * refused.
 */
export class RefusalJudge {
  /** Whether each user's last token was foreign, in the order of the responses. */
  readonly #users = new Map<string, boolean>();
  #foreign = 0;
  /** Users who were refused since the last response that took a token for ours. */
  readonly #refused = new Set<string>();

  /** Adds a response. @returns whether it is our fault */
  add(userId: string, kind: Exclude<Outcome["kind"], "retry" | "unavailable">): boolean {
    if (kind === "refused") return this.#refused.add(userId).size >= severalUsers;
    if (kind === "failed" || kind === "blocked") return false;
    const isForeign = kind === "foreign";
    if (!isForeign) this.#refused.clear();
    this.#remove(userId);
    this.#users.set(userId, isForeign);
    if (isForeign) this.#foreign += 1;
    const [oldest] = this.#users.size > windowSize ? this.#users.keys() : [];
    if (oldest !== undefined) this.#remove(oldest);
    return this.#users.size >= leastUsers && this.#foreign * 2 > this.#users.size;
  }

  clear(): void {
    this.#users.clear();
    this.#refused.clear();
    this.#foreign = 0;
  }

  #remove(userId: string): void {
    if (this.#users.get(userId) === true) this.#foreign -= 1;
    this.#users.delete(userId);
  }
}
