/**
 * When the devices that are left of a chunk are tried again, and when they are given up. Devices that wait for their
 * turn or for their provider spend no tries: only a message's own failures count.
 */

import { wholeProvider } from "../queue/provider-rows.ts";
import type { TakenChunk } from "../queue/take-chunks.ts";
import type { State } from "./breaker.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";
import type { Left, LeftDevice } from "./tally.ts";

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
  /** Whether the wait ends with the provider's next response to any message, if that comes first. */
  readonly endsWithResponse: boolean;
  /** Whether the devices were tried before. Then they come after all devices that were not. */
  readonly isRetry: boolean;
  /** Retries so far. */
  readonly retries: number;
  /** The error that left the devices; null: no error did. */
  readonly reason: string | null;
  /** Whether the devices are tried again only if an operator replays them. */
  readonly giveUp: boolean;
}

/** The facts on which the tries depend, besides the devices that are left. */
interface Circumstances {
  /** The state of the service at the moment. */
  state(service: string): State;
  /** The last error; undefined: there was none. */
  readonly reason: string | undefined;
}

type ChunkHistory = Pick<TakenChunk, "retries" | "reason" | "ageMs">;

/** @returns the next tries of devices that wait, that failed for unclear reasons, and that failed by themselves */
export function nextTries(
  chunk: ChunkHistory,
  left: Left,
  { state, reason: lastReason }: Circumstances,
  rules: DeliveryRules,
  random: Random,
): NextTry[] {
  const reason = lastReason ?? chunk.reason;
  const hasFailed = chunk.retries > 0;
  // A device that an outage hit waits for the outage's end, like the devices that were not sent to because of it. A
  // probe that has failed by itself before shows no outage, and would be the next probe again and again.
  const isHit = ({ service }: LeftDevice) =>
    state(service) === "paused" || (state(service) === "probing" && !hasFailed);
  const waiting = [...left.waiting, ...left.unclear.filter(isHit)];
  const unclear = left.unclear.filter((device) => !isHit(device));
  const backoff = new Backoff(chunk, rules, random);
  return [
    ...waitingTry(chunk, waiting, left.untried, state, reason),
    ...unclearTries(chunk, unclear, backoff, reason),
    ...failingTries(chunk, left.failing, backoff, reason),
    ...blockedTries(chunk, left.blocked),
  ];
}

/** The waits before retries of a chunk's devices. */
class Backoff {
  readonly #chunk: ChunkHistory;
  readonly #rules: DeliveryRules;
  readonly #random: Random;

  constructor(chunk: ChunkHistory, rules: DeliveryRules, random: Random) {
    this.#chunk = chunk;
    this.#rules = rules;
    this.#random = random;
  }

  /** Whether the devices have failed by themselves, and for so long that they are given up. */
  get isOld(): boolean {
    const { retries, reason, ageMs } = this.#chunk;
    return retries > 0 && reason !== null && ageMs > this.#rules.giveUpMs;
  }

  /** Whether a message is given up if it has failed so often. */
  isEnough(failures: number): boolean {
    return this.isOld || failures > this.#rules.maxRetries;
  }

  /** Milliseconds before the next try after so many failures. */
  after(failures: number): number {
    return this.#atMost(this.#rules.firstRetryMs * 2 ** Math.max(0, failures - 1));
  }

  /**
   * Milliseconds before the next try if no failure was counted. To wait as long as the devices have failed so far
   * doubles the wait each time, as counted failures would.
   */
  uncounted(): number {
    return Math.max(this.after(this.#chunk.retries), this.#atMost(this.#chunk.ageMs));
  }

  #atMost(milliseconds: number): number {
    return withJitter(Math.min(this.#rules.longestRetryMs, milliseconds), this.#random);
  }
}

/** The try of the devices that wait for their turn or for their service, if there are any. */
function waitingTry(
  chunk: ChunkHistory,
  waiting: readonly LeftDevice[],
  untried: number,
  state: Circumstances["state"],
  reason: string | null,
): NextTry[] {
  if (waiting.length === 0) return [];
  const services = [...new Set(waiting.map(({ service }) => service))];
  const canSend = services.some((service) => state(service) === "working");
  return [
    {
      devices: ids(waiting),
      afterMs: 0,
      services: canSend ? [] : services,
      endsWithResponse: false,
      isRetry: untried === 0,
      retries: chunk.retries,
      reason: untried === waiting.length ? chunk.reason : reason,
      giveUp: false,
    },
  ];
}

/**
 * The tries of devices of which nothing shows whether their message or their service failed. No failure is counted, and
 * only devices that have failed by themselves before are given up.
 */
function unclearTries(
  { retries }: ChunkHistory,
  unclear: readonly LeftDevice[],
  backoff: Backoff,
  reason: string | null,
): NextTry[] {
  const giveUp = backoff.isOld;
  const leastMs = giveUp ? Number.POSITIVE_INFINITY : backoff.uncounted();
  // A wait that the provider wants is kept to. Only other waits end early, when the provider responds to any message.
  const wanted = unclear.filter(({ afterMs }) => afterMs > 0);
  const others = unclear.filter(({ afterMs }) => afterMs === 0);
  const endsWithResponse = others.every(({ service }) => service === wholeProvider);
  const retry = { services: [], isRetry: true, reason, retries, giveUp };
  return [
    ...byWait(wanted, leastMs).map((part) => ({ ...part, ...retry, endsWithResponse: false })),
    ...byWait(others, leastMs).map((part) => ({ ...part, ...retry, endsWithResponse })),
  ];
}

/** The tries of devices whose message has failed by itself once more. */
function failingTries(
  chunk: ChunkHistory,
  failing: readonly LeftDevice[],
  backoff: Backoff,
  reason: string | null,
): NextTry[] {
  const retries = chunk.retries + 1;
  const giveUp = backoff.isEnough(retries);
  const leastMs = giveUp ? Number.POSITIVE_INFINITY : backoff.after(retries);
  const retry = { services: [], endsWithResponse: false, isRetry: true, reason, retries, giveUp };
  return byWait(failing, leastMs).map((part) => ({ ...part, ...retry }));
}

/** What becomes of the devices that are blocked: they are given up at once. */
function blockedTries({ retries }: ChunkHistory, blocked: Left["blocked"]): NextTry[] {
  const given = { afterMs: 0, services: [], endsWithResponse: false, isRetry: true, retries, giveUp: true };
  return [...blocked].map(([reason, devices]) => ({ ...given, devices, reason }));
}

/**
 * The devices in groups that wait about as long, at least `leastMs`: the wait that the provider wants for one message
 * delays no other message by more than double its own wait.
 */
function byWait(devices: readonly LeftDevice[], leastMs: number): Pick<NextTry, "devices" | "afterMs">[] {
  const groups = Map.groupBy(devices, ({ afterMs }) => Math.max(0, Math.ceil(Math.log2(afterMs / leastMs))));
  return [...groups.values()].map((group) => ({
    devices: ids(group),
    afterMs: Math.max(leastMs, ...group.map(({ afterMs }) => afterMs)),
  }));
}

function ids(devices: readonly LeftDevice[]): number[] {
  return devices.map(({ id }) => id);
}
