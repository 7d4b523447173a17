/**
 * The state of one service, as this process knows it: a provider, or for Web Push one of its origins. Decides from the
 * outcomes of all chunks, whichever they are, when the service is to be paused and when it works again. Nothing here
 * waits or stores; `service-states.ts` shares what is decided with the other processes.
 */
import type { Outcome } from "../providers/provider.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { RefusalJudge } from "./refusal-judge.ts";

/** `open`: messages are sent. `paused`: none is. `probing`: a few are, to find out whether the service works again. */
export type State = "open" | "paused" | "probing";

/**
 * Why a service is paused. `unavailable`: it fails or is over quota. `refused`: it refuses our credentials, project or
 * topic. `foreign`: it takes the tokens of most users for somebody else's.
 */
export type Cause = (typeof causes)[number];
export const causes = ["unavailable", "refused", "foreign"] as const;

/** A reason to pause the service. */
export interface Failure {
  readonly cause: Cause;
  /** The longest wait that the provider wanted in a row of failures, in milliseconds; 0 if none. */
  readonly afterMs: number;
  readonly reason: string;
  /** Only one user's messages have failed since the service last answered, so it may be that user's device. */
  readonly isDoubtful?: boolean;
}

/** What the failure of a message says about its service depends on this. */
export interface Sent {
  /** When it was sent, on the clock of `now`. */
  readonly at: number;
  /** The same message has failed before. */
  readonly isRetry: boolean;
}

/** What all processes share. */
export interface SharedState {
  /** Undefined: the service works. */
  readonly cause: Cause | undefined;
  /** Milliseconds that are left of the pause; 0: it is over. */
  readonly pausedMs: number;
  /** When the state last changed; only compared. */
  readonly since: string;
}

/** Users of a row that are remembered; more show nothing more. */
const maxRow = 1_000;

type Rules = Pick<DeliveryRules, "retriesInARow" | "firstPauseMs" | "probeMessages" | "evidenceMs">;

export class Breaker {
  readonly #rules: Rules;
  readonly #judge = new RefusalJudge();
  #cause: Cause | undefined;
  #pausedUntil = 0;
  #since = "";
  /**
   * Failures in a row, their users, and the longest wait that they wanted. That nothing comes back counts once for each
   * user, and one user alone makes no row: so no single device pauses a service that has little else to do.
   */
  readonly #row = { length: 0, users: new Set<string>(), afterMs: 0 };
  #probes = { admitted: 0, failed: 0 };
  #workedAt = Number.NEGATIVE_INFINITY;
  /** When the latest message was sent that the service has answered. */
  #answeredUpTo = Number.NEGATIVE_INFINITY;

  constructor(rules: Rules) {
    this.#rules = rules;
  }

  /** @param now milliseconds of any clock that only goes forward; the same one in all calls */
  state(now: number): State {
    if (this.#cause === undefined) return "open";
    return now < this.#pausedUntil ? "paused" : "probing";
  }

  /** Whether the next message may be sent. While probing, each admitted message must be reported. */
  admits(now: number): boolean {
    const state = this.state(now);
    if (state !== "probing") return state === "open";
    if (this.#probes.admitted >= this.#rules.probeMessages) return false;
    this.#probes.admitted += 1;
    return true;
  }

  /** Whether the service has shown lately that it works, so that a message's failure is the message's own. */
  works(now: number): boolean {
    return this.#cause === undefined && now - this.#workedAt <= this.#rules.evidenceMs;
  }

  /** Why the service is paused or being probed; undefined: it is not. */
  get cause(): Cause | undefined {
    return this.#cause;
  }

  /** Takes an outcome. @returns the failure for which the service is to be paused, or that it `works` again */
  report(outcome: Outcome, userId: string, now: number, sent: Sent): Failure | "works" | undefined {
    const { kind } = outcome;
    const state = this.state(now);
    // It was sent before the pause, and is no probe: it shows nothing of the service as it is now.
    if (state === "probing" && sent.at < this.#pausedUntil) return undefined;
    if (
      kind === "retry" &&
      (outcome.isOwn || (outcome.isUnanswered && this.#isItsOwn(userId, sent, state)))
    ) {
      if (state === "probing") this.#probes.admitted = Math.max(0, this.#probes.admitted - 1);
      return undefined;
    }
    if (kind === "retry" || kind === "unavailable") {
      const { reason, afterMs = 0 } = outcome;
      this.#row.length += 1;
      return this.#fail({ cause: "unavailable", afterMs, reason }, userId, kind === "unavailable", now);
    }
    if (kind === "refused") {
      return this.#fail({ cause: kind, afterMs: 0, reason: outcome.reason }, userId, true, now);
    }
    const isForeign = kind === "foreign";
    const isMostForeign = kind !== "failed" && this.#judge.add(userId, isForeign);
    if (isForeign && this.#cause === "foreign") {
      // The service answers, but it does not show yet that it takes our users' tokens again.
      return this.#fail({ cause: kind, afterMs: 0, reason: outcome.reason }, userId, true, now);
    }
    this.#endRow();
    this.#workedAt = now;
    this.#answeredUpTo = Math.max(this.#answeredUpTo, sent.at);
    if (isForeign && isMostForeign && state === "open") {
      return this.#pause({ cause: kind, afterMs: 0, reason: outcome.reason }, now);
    }
    if (state !== "probing") return undefined;
    this.#cause = undefined;
    return "works";
  }

  /**
   * Whether that a message gets no answer says nothing about the service. One that answers what was sent later is there;
   * and a message that failed before may be the cause itself, as may a user whose messages have failed since the service
   * last answered. So the messages that are left at the end of a send, as they never get an answer, stop no other send;
   * but those that were in flight when the service fell silent count, as it has answered nothing that was sent after them.
   * So does a probe, whose ever it is: the service has answered nobody since it was paused.
   */
  #isItsOwn(userId: string, { at, isRetry }: Sent, state: State): boolean {
    if (isRetry || at < this.#answeredUpTo) return true;
    return state !== "probing" && this.#row.users.has(userId);
  }

  /** The service has answered. */
  #endRow(): void {
    this.#row.length = 0;
    this.#row.users.clear();
    this.#row.afterMs = 0;
  }

  /** Whether the failures in a row are enough to show that the service fails. */
  get #isRow(): boolean {
    return this.#row.length >= this.#rules.retriesInARow && this.#row.users.size > 1;
  }

  /** @param isCertain one such failure shows that the service fails; otherwise only a row of them does */
  #fail(failure: Failure, userId: string, isCertain: boolean, now: number): Failure | undefined {
    const state = this.state(now);
    const row = this.#row;
    if (row.users.size < maxRow) row.users.add(userId);
    row.afterMs = Math.max(row.afterMs, failure.afterMs);
    if (state === "probing") {
      this.#probes.failed += 1;
      if (this.#probes.failed < this.#probes.admitted) return undefined;
      const isDoubtful = !isCertain && row.users.size === 1;
      return this.#pause({ ...failure, afterMs: row.afterMs, ...(isDoubtful && { isDoubtful }) }, now);
    }
    if (failure.cause !== "unavailable") return state === "open" ? this.#pause(failure, now) : undefined;
    if (!isCertain && !this.#isRow) return undefined;
    const { afterMs } = row;
    if (state !== "paused") return this.#pause({ ...failure, afterMs }, now);
    // What was in flight when the pause began can only prolong it: by a little more than it wants, as each time is stored.
    if (now + afterMs <= this.#pausedUntil) return undefined;
    const longer = { afterMs: afterMs + this.#rules.firstPauseMs / 10 };
    return this.#pause({ ...failure, cause: this.#cause ?? failure.cause, ...longer }, now);
  }

  /** Pauses for a while, until the pause that all processes share is known. */
  #pause(failure: Failure, now: number): Failure {
    this.#cause = failure.cause;
    this.#pausedUntil = now + Math.max(failure.afterMs, this.#rules.firstPauseMs);
    this.#probes = { admitted: 0, failed: 0 };
    return failure;
  }

  /** The service has answered another process, at this moment of our clock. */
  answeredOthers(at: number): void {
    this.#workedAt = Math.max(this.#workedAt, at);
  }

  /** Takes over what all processes share. A new state is judged by its own answers; only one that works ends a row. */
  share({ cause, pausedMs, since }: SharedState, now: number): void {
    const isSame = since === this.#since;
    // Probing began when the pause was over, and not when another chunk learns that it is.
    const isOver = isSame && pausedMs === 0 && this.state(now) === "probing";
    this.#cause = cause;
    if (!isOver) {
      this.#pausedUntil = now + pausedMs;
      this.#probes = { admitted: 0, failed: 0 };
    }
    if (isSame) return;
    this.#since = since;
    this.#judge.clear();
    this.#row.length = 0;
    this.#row.afterMs = 0;
    if (cause === undefined) this.#endRow();
  }
}
