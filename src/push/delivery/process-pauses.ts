/**
 * The pauses of this process alone: services that it cannot use by a fault that may be its own. It takes no chunks of
 * their provider meanwhile. One that no living process can use is paused for all, which is a {@link ProviderPauses}'
 * pause beside this one.
 */
import type { Cause, Failure, SharedState } from "./breaker.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";
import type { Fault } from "./faults.ts";

export interface ProcessPause {
  readonly cause: Cause;
  readonly fault: Fault;
  readonly reason: string;
  /** Failures in a row. */
  readonly failures: number;
  /** When the service is tried again, by `performance.now()`. */
  until: number;
  readonly since: string;
  /** Whether the service is paused for all. */
  isShared: boolean;
  isLogged: boolean;
}

export class ProcessPauses {
  readonly #rules: DeliveryRules;
  readonly #random: Random;
  readonly #pauses = new Map<string, ProcessPause>();

  constructor(rules: DeliveryRules, random: Random) {
    this.#rules = rules;
    this.#random = random;
  }

  get size(): number {
    return this.#pauses.size;
  }

  get(service: string): ProcessPause | undefined {
    return this.#pauses.get(service);
  }

  all(): (readonly [string, ProcessPause])[] {
    return [...this.#pauses];
  }

  /** Those of this process alone, by service. */
  own(): (readonly [string, ProcessPause])[] {
    return this.all().filter(([, { isShared }]) => !isShared);
  }

  /** Begins a pause: a longer one with each failure in a row. During a pause a failure prolongs it at most. */
  add(service: string, fault: Fault, { cause, reason, afterMs }: Failure, now: number): ProcessPause {
    const { firstPauseMs, longestOwnPauseMs } = this.#rules;
    const before = this.#pauses.get(service);
    const isOther = before?.fault !== fault;
    const isNew = before === undefined || isOther || now >= before.until;
    const failures = isOther ? 1 : before.failures + (isNew ? 1 : 0);
    const backoffMs = withJitter(firstPauseMs * 2 ** (failures - 1), this.#random);
    const pauseMs = Math.min(Math.max(afterMs, isNew ? backoffMs : 0), longestOwnPauseMs);
    const until = Math.max(before?.until ?? 0, now + pauseMs);
    const since = isNew ? `own ${now}` : before.since;
    const { isShared = false, isLogged = false } = isOther ? {} : before;
    const pause = { cause, fault, reason, failures, until, since, isShared, isLogged };
    this.#pauses.set(service, pause);
    return pause;
  }

  end(service: string): void {
    this.#pauses.delete(service);
  }

  /** The state of a service for this process. @param shared that for all processes */
  stateOf(service: string, shared: SharedState, now: number): SharedState {
    const own = this.#pauses.get(service);
    if (!own) return shared;
    const isShared = shared.cause !== undefined;
    // When the pause for all is over, or another process has ended it, this one may try as well.
    if (isShared || own.isShared) own.until = Math.min(own.until, now + shared.pausedMs);
    own.isShared = isShared;
    if (isShared) return shared;
    return { cause: own.cause, pausedMs: Math.max(0, own.until - now), since: own.since };
  }
}
