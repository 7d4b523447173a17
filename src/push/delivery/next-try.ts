/**
 * When the devices that are left of a chunk are tried again, and when they are given up. What waits for its turn or for
 * its provider spends no tries: only a message's own failures count.
 */
import type { TakenChunk } from "./chunk-repository.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";
import type { Left } from "./tally.ts";

/** The next try of some of a chunk's devices. */
export interface NextTry {
  readonly devices: readonly number[];
  /** Milliseconds from now. */
  readonly afterMs: number;
  /**
   * Services of which none can be sent to at the moment. The devices are tried again when the first of their pauses is
   * over, whatever `afterMs` says; the wait does not count as time in which they failed.
   */
  readonly services: readonly string[];
  /** It comes after all that has not been tried yet. */
  readonly isLast: boolean;
  /** Retries so far. */
  readonly retries: number;
  /** The error that left the devices; null: no error did. */
  readonly reason: string | null;
  /** The devices are not tried again unless an operator replays them. */
  readonly giveUp: boolean;
}

/** What the tries depend on, besides the devices that are left. */
interface Circumstances {
  /** Services of these devices, if none of them can be sent to at the moment; else empty. */
  closed(devices: readonly number[]): readonly string[];
  /** The longest wait that the provider wanted, in milliseconds. */
  readonly afterMs: number;
  /** The last error; undefined: there was none. */
  readonly reason: string | undefined;
  /** Whether the chunk was sent to its end. Otherwise its failures are not counted yet. */
  readonly isComplete: boolean;
}

/** @returns the next try of what waits, of what failed for unclear reasons, and of what failed by itself */
export function nextTries(
  chunk: Pick<TakenChunk, "retries" | "reason" | "ageMs">,
  left: Left,
  circumstances: Circumstances,
  rules: DeliveryRules,
  random: Random,
): NextTry[] {
  const { retries } = chunk;
  const reason = circumstances.reason ?? chunk.reason;
  const backoff = (tries: number) => {
    const ms = Math.min(rules.longestRetryMs, rules.firstRetryMs * 2 ** Math.max(0, tries - 1));
    return Math.max(circumstances.afterMs, withJitter(ms, random));
  };
  const group = (devices: readonly number[], rest: Omit<NextTry, "devices" | "services">): NextTry => ({
    devices,
    services: circumstances.closed(devices),
    ...rest,
  });
  const { untried, failing } = left;
  // What an outage hit waits for its end, like what the outage kept from being sent.
  const isOutage = circumstances.closed(left.unclear).length > 0;
  const waiting = isOutage ? [...left.waiting, ...left.unclear] : left.waiting;
  const unclear = isOutage ? [] : left.unclear;
  const isFresh = untried > 0;
  const counted = circumstances.isComplete ? retries + 1 : retries;
  const isOld = chunk.reason !== null && chunk.ageMs > rules.giveUpMs;
  const giveUp = circumstances.isComplete && (isOld || counted > rules.maxRetries);
  return [
    group(waiting, {
      ...{ afterMs: 0, isLast: !isFresh, retries, giveUp: false },
      reason: untried === waiting.length ? chunk.reason : reason,
    }),
    group(unclear, { afterMs: backoff(retries), isLast: true, retries, reason, giveUp: false }),
    group(failing, { afterMs: backoff(counted), isLast: true, retries: counted, reason, giveUp }),
  ].filter(({ devices }) => devices.length > 0);
}
