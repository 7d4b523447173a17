/**
 * Counters of attempts, shared by all processes: every decision is one step of the database or cache, on its clock.
 */
import { createHmac } from "node:crypto";

/** How many attempts count in how many seconds. A window begins with its first attempt. */
export interface AttemptRule {
  readonly name: string;
  readonly failures: number;
  readonly windowSeconds: number;
}

/**
 * Seconds by which a window may seem to last longer than its rule says. One that has still longer to go was begun
 * before the clock was set back, and has ended.
 */
export const windowSlackSeconds = 60;

/** One rule, applied to one account, client, or whatever else the rule is about. */
export interface Counter {
  readonly rule: AttemptRule;
  readonly subject: string;
}

/** An attempt that counts. */
export interface CountedAttempt {
  /** The number of attempts that count in this window, this one among them. */
  readonly count: number;
  /** Takes the attempt back. Without effect if its window has ended: it counts no more. */
  withdraw(): Promise<void>;
}

/** A counter that has reached its limit. */
export interface FullCounter<C extends Counter = Counter> {
  readonly counter: C;
  /** Seconds until its window ends. */
  readonly waitSeconds: number;
}

export interface AttemptCounters {
  /** Those that are full. Only reads. */
  full<C extends Counter>(counters: readonly C[]): Promise<readonly FullCounter<C>[]>;
  /**
   * Counts an attempt before its outcome is known, so that parallel guesses cannot exceed the limit; undefined if the
   * counter is full. Then nothing is written.
   */
  count(counter: Counter): Promise<CountedAttempt | undefined>;
  /** Sets counters to zero. */
  clear(counters: readonly Counter[]): Promise<void>;
}

/** The key of a counter, which spells out no account. */
export type KeyOf = (counter: Counter) => string;

/**
 * Keys are digests, apart for each deployment. No secret goes into them, so whoever reads keys can try out subjects.
 * @param issuer the same in every process
 */
export function createKeyOf(issuer: string): KeyOf {
  return ({ rule, subject }) =>
    `${rule.name}:${createHmac("sha256", issuer).update(subject).digest("base64url")}`;
}
