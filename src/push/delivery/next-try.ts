/**
 * When the devices that are left of a chunk are tried again, and when they are given up. What waits for its turn or for
 * its provider spends no tries: only a message's own failures count.
 */
import type { State } from "./breaker.ts";
import type { TakenChunk } from "./chunk-repository.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";
import { wholeProvider } from "./provider-pauses.ts";
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
  /** The wait ends with the provider's next answer to anybody, if that comes first. */
  readonly endsWithAnswer: boolean;
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
  /** The state of the service at the moment. */
  state(service: string): State;
  /** The last error; undefined: there was none. */
  readonly reason: string | undefined;
}

/** @returns the next tries of what waits, of what failed for unclear reasons, and of what failed by itself */
export function nextTries(
  chunk: Pick<TakenChunk, "retries" | "reason" | "ageMs">,
  left: Left,
  { state, reason: lastReason }: Circumstances,
  rules: DeliveryRules,
  random: Random,
): NextTry[] {
  const { retries } = chunk;
  const isOpen = (service: string) => state(service) === "open";
  const reason = lastReason ?? chunk.reason;
  const hasFailed = retries > 0;
  // What an outage hit waits for its end, like what the outage kept from being sent. A probe that has failed by itself
  // before shows no outage, and would be the next probe again and again.
  const isHit = ({ service }: LeftDevice) =>
    state(service) === "paused" || (state(service) === "probing" && !hasFailed);
  const waiting = [...left.waiting, ...left.unclear.filter(isHit)];
  const unclear = left.unclear.filter((device) => !isHit(device));
  const services = new Set(waiting.map(({ service }) => service));
  const wait: NextTry = {
    devices: ids(waiting),
    afterMs: 0,
    services: services.values().some(isOpen) ? [] : [...services],
    endsWithAnswer: false,
    isLast: left.untried === 0,
    retries,
    reason: left.untried === waiting.length ? chunk.reason : reason,
    giveUp: false,
  };
  // While nothing shows whose failure it is no try is counted, and only what has failed by itself before has an end.
  const isOld = hasFailed && chunk.reason !== null && chunk.ageMs > rules.giveUpMs;
  const failed = retries + 1;
  const giveUp = isOld || failed > rules.maxRetries;
  const atMost = (ms: number) => withJitter(Math.min(rules.longestRetryMs, ms), random);
  const backoff = (tries: number) => atMost(rules.firstRetryMs * 2 ** Math.max(0, tries - 1));
  const retry = { services: [], endsWithAnswer: false, isLast: true, reason };
  // To wait as long as it has failed so far doubles the wait each time, as counted tries would.
  const unclearMs = isOld ? Number.POSITIVE_INFINITY : Math.max(backoff(retries), atMost(chunk.ageMs));
  // What the provider wants a wait for waits, whoever is answered meanwhile.
  const wanted = unclear.filter(({ afterMs }) => afterMs > 0);
  const unanswered = unclear.filter(({ afterMs }) => afterMs === 0);
  const endsWithAnswer = unanswered.every(({ service }) => service === wholeProvider);
  return [
    ...(waiting.length > 0 ? [wait] : []),
    ...byWait(wanted, unclearMs).map((part) => ({ ...part, ...retry, retries, giveUp: isOld })),
    ...byWait(unanswered, unclearMs).map((part) => ({
      ...part,
      ...retry,
      endsWithAnswer,
      retries,
      giveUp: isOld,
    })),
    ...byWait(left.failing, giveUp ? Number.POSITIVE_INFINITY : backoff(failed)).map((part) => ({
      ...part,
      ...retry,
      retries: failed,
      giveUp,
    })),
  ];
}

/**
 * The devices in groups that wait about as long, at least `leastMs`: what the provider wants of one message delays no
 * other by more than double its own wait.
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
