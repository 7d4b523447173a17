/**
 * When the devices that are left of a chunk are tried again, and when they are given up. Only a message's own failures
 * spend tries.
 */
import { wholeProvider } from "../queue/provider-rows.ts";
import type { Part } from "../queue/store-results.ts";
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

/**
 * @param states of the services at the moment
 * @param lastError of the attempt; undefined: there was none
 * @returns the next tries of devices that wait, that failed for unclear reasons, that failed by themselves, and that are
 *   blocked
 */
export function nextTries(
  chunk: Pick<TakenChunk, "retries" | "reason" | "ageMs">,
  left: Left,
  states: { state(service: string): State },
  lastError: string | undefined,
  rules: DeliveryRules,
  random: Random,
): NextTry[] {
  const { retries, ageMs } = chunk;
  const reason = lastError ?? chunk.reason;
  const retry = {
    afterMs: 0,
    services: [],
    endsWithResponse: false,
    isRetry: true,
    retries,
    reason,
    giveUp: false,
  };

  // A device that an outage hit waits for the outage's end, like the devices that were not sent to because of it. A
  // probe that has failed by itself before shows no outage, and would be the next probe again and again.
  const isHit = ({ service }: LeftDevice) => {
    const state = states.state(service);
    return state === "paused" || (state === "probing" && retries === 0);
  };
  const waiting = [...left.waiting, ...left.unclear.filter(isHit)];
  const services = [...new Set(waiting.map(({ service }) => service))];
  const canSend = services.some((service) => states.state(service) === "working");
  const waitingTry = {
    ...retry,
    devices: ids(waiting),
    services: canSend ? [] : services,
    isRetry: left.untried === 0,
    reason: left.untried === waiting.length ? chunk.reason : reason,
  };

  const atMost = (ms: number) => withJitter(Math.min(rules.longestRetryMs, ms), random);
  const backoffMs = (failures: number) => atMost(rules.firstRetryMs * 2 ** Math.max(0, failures - 1));

  // No failure is counted of what is unclear. To wait as long as the devices have failed so far doubles the wait each
  // time, as counted failures would. Only devices that have failed by themselves before are given up.
  const isOld = retries > 0 && chunk.reason !== null && ageMs > rules.giveUpMs;
  const unclearMs = isOld ? Number.POSITIVE_INFINITY : Math.max(backoffMs(retries), atMost(ageMs));
  // A wait that the provider wants is kept to. Only other waits end early, when the provider responds to any message.
  const unclear = left.unclear.filter((device) => !isHit(device));
  const wanted = unclear.filter(({ afterMs }) => afterMs > 0);
  const others = unclear.filter(({ afterMs }) => afterMs === 0);
  const endsWithResponse = others.every(({ service }) => service === wholeProvider);

  const failures = retries + 1;
  const isEnough = isOld || failures > rules.maxRetries;
  const failingMs = isEnough ? Number.POSITIVE_INFINITY : backoffMs(failures);
  return [
    ...(waiting.length > 0 ? [waitingTry] : []),
    ...byWait(wanted, unclearMs).map((part) => ({ ...retry, ...part, giveUp: isOld })),
    ...byWait(others, unclearMs).map((part) => ({ ...retry, ...part, giveUp: isOld, endsWithResponse })),
    ...byWait(left.failing, failingMs).map((part) => ({
      ...retry,
      ...part,
      retries: failures,
      giveUp: isEnough,
    })),
    ...[...left.blocked].map(([why, devices]) => ({ ...retry, devices, reason: why, giveUp: true })),
  ];
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

/** The shortest wait for services that cannot be sent to, in milliseconds: other messages are probing them. */
const probedMs = 500;

/** The chunk's own devices that were not tried. @param waitMs milliseconds for which they wait; 0: they do not */
export function untriedPart(
  chunk: Pick<TakenChunk, "retries" | "reason">,
  devices: readonly number[],
  waitMs: number,
): Part {
  const waits = waitMs > 0;
  return { ...own(chunk, waits ? "WAITING" : "READY", devices), waitMs, startsAnew: waits };
}

/** A chunk's own devices, as they are. */
export function own(
  { retries, reason }: Pick<TakenChunk, "retries" | "reason">,
  state: "TAKEN" | "READY" | "WAITING" | "DONE",
  devices: readonly number[] = [],
): Part {
  return { state, devices, waitMs: 0, awaits: null, isRetry: false, retries, reason, startsAnew: false };
}

/**
 * What the tries make of the chunk: the first of them is the chunk itself, the others become chunks of their own.
 * @param restMs milliseconds for which devices wait that were not tried
 */
export function partsOf(
  tries: readonly NextTry[],
  states: { pausedMs(service: string): number },
  restMs = 0,
): Part[] {
  return tries.map(({ devices, isRetry, retries, reason, services, afterMs, endsWithResponse, giveUp }) => {
    const ready = { ...own({ retries, reason }, "READY", devices), isRetry, startsAnew: services.length > 0 };
    if (giveUp) return { ...ready, state: "DEAD" };
    if (services.length > 0) {
      const pausedMs = Math.min(...services.map((service) => states.pausedMs(service)));
      // Nobody takes the chunks of a provider that is paused as a whole, so they need not wait.
      if (pausedMs > 0 && services.includes(wholeProvider)) return ready;
      return { ...ready, state: "WAITING", waitMs: Math.max(probedMs, pausedMs), awaits: "SERVICE" };
    }
    if (afterMs === 0) return { ...untriedPart({ retries, reason }, devices, restMs), isRetry };
    return { ...ready, state: "WAITING", waitMs: afterMs, awaits: endsWithResponse ? "RESPONSE" : null };
  });
}
