/**
 * The sending of one chunk, until all messages are sent or something stops it. The pace gives messages their times; the
 * flow begins those that are due, and names the states that they wait in. While nobody can tell whether the notification
 * was paused or cancelled, no message begins. Stores nothing itself.
 */
import type { Send } from "../providers/provider.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import type { SendableChunk } from "../queue/take-chunks.ts";
import { Flow, type FlowDependencies } from "./flow.ts";
import type { ProviderRateLimiter, Reservation } from "./rate-limiter.ts";
import type { createSendRate } from "./send-rate.ts";
import type { SendabilityCheck, StopReason } from "./sendability-check.ts";
import type { ServiceStates } from "./service-states.ts";
import type { DeliveryDevice, Tally } from "./tally.ts";

/** A chunk that is being sent. */
export interface Sending {
  readonly tally: Tally;
  /**
   * Resolves when nothing is in flight any more, or after `maxHeldMs`. Undefined: whatever could be sent was sent, and errors and paused
   * services are why devices are left.
   */
  readonly ended: Promise<StopReason | undefined>;
  /**
   * Gives up the devices that were not tried when the chunk's turn or the process ended, so that they need not wait for
   * the responses that other devices' messages have still to get. @returns their ids; empty if the sending goes on
   */
  takeUntried(): readonly number[];
  /** Milliseconds for which the devices are to wait that were not tried; 0: they need not. */
  readonly restMs: number;
  /** Stops sending; messages in flight finish. The first reason counts. */
  stop(reason: StopReason): void;
}

export interface SendDependencies extends FlowDependencies {
  readonly rateLimiter: ProviderRateLimiter;
  /** The limits of notifications that have one. */
  readonly sendRate: ReturnType<typeof createSendRate>;
  readonly states: ServiceStates;
  readonly check: SendabilityCheck;
}

interface SendOptions {
  readonly stopping: AbortSignal;
  /** Called, at least once, when the next chunk may be loaded: this one needs less than the budget now. */
  readonly next: () => void;
}

export function startSending(
  dependencies: SendDependencies,
  chunk: SendableChunk,
  sendTo: (device: DeliveryDevice) => Send,
  devices: readonly DeliveryDevice[],
  { stopping, next }: SendOptions,
): Sending {
  const { check, states, rules, logger } = dependencies;
  const { id, attempt } = chunk;
  const flow = new Flow(dependencies, chunk, sendTo, devices, next);
  const stop = (reason: StopReason) => flow.stop(reason);
  const overdue = Promise.withResolvers<StopReason>();
  // A send that never returns keeps the chunk from nobody for longer.
  const held = setTimeout(() => {
    stop("overdue");
    overdue.resolve("overdue");
  }, rules.maxHeldMs).unref();
  const end = () => stop("ending");
  stopping.addEventListener("abort", end);
  const uncheck = check.add({ id, attempt, confirm: (asOf) => flow.confirm(asOf), stop });
  if (stopping.aborted) end();

  async function run(): Promise<StopReason | undefined> {
    await pace(dependencies, chunk, flow, next).catch((err: unknown) => {
      // Only the rate limiter uses the database here. The results are stored as soon as the database is back.
      logger.warn({ err, chunkId: id }, "The rate limiter failed, so a chunk is queued again");
      stop("database");
    });
    await flow.responded();
    await states.stored();
    return flow.stopReason;
  }

  return {
    tally: flow.tally,
    ended: Promise.race([run(), overdue.promise]).finally(() => {
      uncheck();
      clearTimeout(held);
      stopping.removeEventListener("abort", end);
    }),
    takeUntried() {
      const isOver = ["long", "rate", "ending"].includes(flow.stopReason ?? "");
      return isOver ? flow.tally.takeFrom(flow.begun) : [];
    },
    get restMs() {
      return flow.restMs;
    },
    stop,
  };
}

/** Both reservations: the messages of the second, no sooner and no faster than either has them. */
function both(own: Reservation, { messages, ...theirs }: Reservation, elapsedMs: number): Reservation {
  const startMs = Math.max(own.startMs - elapsedMs, theirs.startMs);
  const lengthMs = Math.max(own.endMs - own.startMs, theirs.endMs - theirs.startMs);
  return { messages, startMs, endMs: startMs + lengthMs };
}

/**
 * Gives messages their times within the rate limits, one reservation after the other: that of the notification, which
 * keeps no other chunk waiting, and then that of the provider. If the provider has been paused
 * before, a probe comes first: a few messages, for whose outcomes the others wait.
 * @returns resolves when all messages have begun, or the flow is stopped; rejects with an error of the database
 */
async function pace(
  { rateLimiter, sendRate, states, rules }: SendDependencies,
  { notification, notificationId }: SendableChunk,
  flow: Flow,
  next: () => void,
): Promise<void> {
  const { acceptedAt, maxPerSecond } = notification;
  const isLimited = rateLimiter.isLimited || maxPerSecond !== null;
  const deadline = performance.now() + rules.maxSendingMs;
  const isWorking = () => states.state(wholeProvider) === "working";

  /** Lets the chunk's first messages begin. */
  async function begin(count: number): Promise<void> {
    while (flow.begun < count && flow.stopReason === undefined) {
      if (isLimited && performance.now() > deadline) return flow.stop("long");
      const wanted = count - flow.begun;
      const own = maxPerSecond === null ? undefined : await sendRate(notificationId, maxPerSecond, wanted);
      if (own && "waitMs" in own) return flow.stop("rate", own.waitMs);
      const since = performance.now();
      const theirs = await rateLimiter.reserve(own?.messages ?? wanted, acceptedAt);
      // If the provider is slower than the rate limit, messages must not pile up and go out as a burst.
      await flow.begin(own ? both(own, theirs, performance.now() - since) : theirs);
    }
  }

  /** @returns whether the provider works again */
  async function probe(): Promise<boolean> {
    if (!(await states.passesSelfTest())) return false;
    await begin(Math.min(rules.probeMessages, flow.tally.size));
    await flow.responded();
    return isWorking();
  }

  // What waits for its notification's own rate keeps no other notification waiting.
  if (maxPerSecond !== null && isWorking()) next();
  if (isWorking() || (await probe())) await begin(flow.tally.size);
  else flow.stop("provider");
}
