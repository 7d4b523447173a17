/**
 * The sending of one chunk within the rate limit, until all messages are sent or something stops it. If the provider
 * has been paused before, a probe comes first. While nobody can tell whether the notification was paused or cancelled,
 * no message begins. Stores nothing itself.
 */
import { pause } from "../../platform/base/loop.ts";
import { currentSpan, inSpan, type Span } from "../../platform/base/tracing.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { NotificationContent, Outcome, PushProvider, Recipient } from "../providers/provider.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import type { SendableChunk } from "../queue/take-chunks.ts";
import type { DeliveryMetrics } from "./delivery-metrics.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { Flow } from "./flow.ts";
import type { InFlightBudget } from "./in-flight-budget.ts";
import { messageId } from "./message-id.ts";
import type { DeliveryDevice } from "./outcomes.ts";
import type { ProviderRateLimiter, Reservation } from "./rate-limiter.ts";
import type { SendabilityCheck, StopReason } from "./sendability-check.ts";
import type { ServiceStates } from "./service-states.ts";
import { Tally } from "./tally.ts";

/** A chunk that is being sent. */
export interface Sending {
  readonly tally: Tally;
  /**
   * Resolves when nothing is in flight any more. Undefined: whatever could be sent was sent, and errors and paused
   * services are why devices are left.
   */
  readonly ended: Promise<StopReason | undefined>;
  /**
   * Gives up the devices that were not tried when the chunk's turn or the process ended, so that they need not wait for
   * the responses that other devices' messages have still to get. @returns their ids; empty if the sending goes on
   */
  takeUntried(): readonly number[];
  /** Stops sending; messages in flight finish. The first reason counts. */
  stop(reason: StopReason): void;
}

export interface SendDependencies {
  readonly provider: PushProvider;
  /** Shared by all chunks of the provider that this process sends. */
  readonly budget: InFlightBudget;
  readonly rateLimiter: ProviderRateLimiter;
  readonly states: ServiceStates;
  readonly check: SendabilityCheck;
  readonly rules: DeliveryRules;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

/** Messages of a chunk that have a span of their own. More would show the same, and a send to millions is one trace. */
const maxTraced = 32;

interface SendOptions {
  readonly stopping: AbortSignal;
  /** Called, at least once, when the next chunk may be loaded: this one needs less than the budget now. */
  readonly next: () => void;
}

export function startSending(
  dependencies: SendDependencies,
  chunk: SendableChunk,
  content: NotificationContent,
  devices: readonly DeliveryDevice[],
  options: SendOptions,
): Sending {
  const { stopping } = options;
  const sending = new ChunkSending(dependencies, chunk, content, devices, options);
  const { tally } = sending;
  const overdue = Promise.withResolvers<StopReason>();
  const stop = (reason: StopReason) => {
    sending.stop(reason);
    if (reason === "overdue") overdue.resolve(reason);
  };
  const end = () => stop("ending");
  stopping.addEventListener("abort", end);
  const { id, attempt } = chunk;
  const confirm = (asOf: number) => sending.confirm(asOf);
  const uncheck = dependencies.check.add({ id, attempt, confirm, stop });
  if (stopping.aborted) end();
  const ended = Promise.race([sending.run(), overdue.promise]).finally(() => {
    uncheck();
    stopping.removeEventListener("abort", end);
  });
  return { tally, ended, takeUntried: () => sending.takeUntried(), stop };
}

class ChunkSending {
  readonly #deps: SendDependencies;
  readonly #chunk: SendableChunk;
  readonly #flow: Flow;
  readonly #next: () => void;
  /** The span of the chunk's job, where that is traced. */
  readonly #span: Span | undefined = currentSpan();
  readonly #stopped = new AbortController();
  readonly #deadline: number;
  /** The newest moment as of which the chunk is known to be sendable, by `performance.now()`. */
  #confirmedAsOf: number;
  /** When each message was sent, by `performance.now()`; by the device's place in the chunk. */
  readonly #sentAt: number[] = [];
  readonly tally: Tally;
  /** The times of the chunk's messages from `first` up to `end`; undefined: there is no limit. */
  #times: Times | undefined;
  /** Messages that have a time by now. */
  #reserved = 0;
  #reason: StopReason | undefined;

  constructor(
    deps: SendDependencies,
    chunk: SendableChunk,
    content: NotificationContent,
    devices: readonly DeliveryDevice[],
    { next }: SendOptions,
  ) {
    this.#deps = deps;
    this.#chunk = chunk;
    this.#next = next;
    this.#deadline = performance.now() + deps.rules.maxSendingMs;
    this.#confirmedAsOf = chunk.asOf;
    this.tally = new Tally(devices);
    const send = deps.provider.prepare(content);
    this.#flow = new Flow({
      budget: deps.budget,
      isRetry: chunk.isRetry,
      mayBegin: () => performance.now() - this.#confirmedAsOf < deps.rules.maxUncheckedMs,
      isLate: (index) => performance.now() - this.#timeOf(index) > deps.rules.sliceMs,
      send: (index) => this.#sendOne(index, content.notificationId, send),
      onException: (err) => this.#onException(err),
      onOutcome: (index, outcome) => this.#onOutcome(index, outcome),
    });
  }

  /** Sends a message, if its service admits it. A refusal that a self-test can check is checked. */
  #sendOne(
    index: number,
    notificationId: string,
    send: (recipient: Recipient) => Promise<Outcome>,
  ): Promise<Outcome> | undefined {
    const { provider, states } = this.#deps;
    const { id = 0, token = "", service = wholeProvider } = this.tally.device(index) ?? {};
    if (!states.admits(service)) {
      this.#stopIfPaused();
      return undefined;
    }
    if (this.#isNearlyStarted(index)) this.#offerNext();
    this.#sentAt[index] = performance.now();
    const recipient = { token, messageId: messageId(notificationId, id) };
    const sent = this.#span && index < maxTraced ? this.#traced(() => send(recipient)) : send(recipient);
    if (provider.selfTest === undefined) return sent;
    return sent.then((outcome) => (outcome.kind === "refused" ? states.selfTest.confirm(outcome) : outcome));
  }

  /**
   * Sends within a span. Its parent is named, as the response to another chunk's message may be what begins this one.
   */
  #traced(send: () => Promise<Outcome>): Promise<Outcome> {
    const { name } = this.#deps.provider;
    const attributes = { "messaging.system": name, "messaging.operation.type": "send" };
    const start = { name: `send ${name}`, kind: "client", attributes, parent: this.#span?.context } as const;
    return inSpan(start, async (span) => {
      const outcome = await send();
      if (outcome.kind !== "sent") span?.fail(outcome.kind);
      return outcome;
    });
  }

  /** Whether the next chunk, which takes a moment to load, is needed soon after the message at this place. */
  #isNearlyStarted(index: number): boolean {
    const { provider, rules } = this.#deps;
    const { size } = this.tally;
    if (this.#reserved < size) return false;
    const isTimed =
      this.#times === undefined || performance.now() >= this.#timeOf(size - 1) - rules.loadAheadMs;
    return isTimed && size - index - 1 <= provider.maxInFlight / 2;
  }

  /** Lets the next chunk begin. While the provider is paused or probed, chunks begin one after the other. */
  #offerNext(): void {
    if (this.#deps.states.state(wholeProvider) === "working") this.#next();
  }

  #onOutcome(index: number, outcome: Outcome): void {
    const { service = wholeProvider, userId = "" } = this.tally.device(index) ?? {};
    this.tally.add(index, outcome);
    const at = this.#sentAt[index] ?? 0;
    this.#deps.states.report(service, userId, outcome, { at, hasFailedBefore: this.#chunk.retries > 0 });
    this.#stopIfPaused();
  }

  #onException(err: unknown): void {
    const { provider, logger, metrics } = this.#deps;
    metrics.senderExceptions.inc({ provider: provider.name });
    // The message of the error may quote the token, so the log gets its class alone.
    const type = err instanceof Error ? err.name : "unknown";
    logger.error({ provider: provider.name, err: { type } }, "A sender has a defect: it threw an exception");
  }

  #stopIfPaused(): void {
    const { provider, states } = this.#deps;
    if (provider.serviceOf === undefined && states.state(wholeProvider) === "paused") this.stop("provider");
  }

  /** Notes that the chunk is sendable. Messages that had to wait for that begin. @param asOf when the check began */
  confirm(asOf: number): void {
    this.#confirmedAsOf = asOf;
    this.#flow.onRoom();
  }

  /** Stops sending; messages in flight finish. The first reason counts. */
  stop(reason: StopReason): void {
    this.#reason ??= reason;
    this.#flow.stop();
    this.#stopped.abort();
    // A chunk whose job comes too early, as the provider is paused, is returned.
    this.#next();
  }

  takeUntried(): readonly number[] {
    return this.#reason === "long" || this.#reason === "ending" ? this.tally.takeFrom(this.#flow.begun) : [];
  }

  async run(): Promise<StopReason | undefined> {
    const { states, logger } = this.#deps;
    try {
      if (states.state(wholeProvider) === "working" || (await this.#probe())) {
        await this.#release(this.tally.size);
      }
    } catch (err) {
      // Only the rate limiter uses the database here. The results are stored as soon as the database is back.
      logger.warn({ err, chunkId: this.#chunk.id }, "The rate limiter failed, so a chunk is queued again");
      this.stop("database");
    }
    await this.#flow.idle();
    await states.stored();
    return this.#reason;
  }

  /** Sends a few messages and waits for their outcomes. @returns whether the provider works again */
  async #probe(): Promise<boolean> {
    const { states, rules } = this.#deps;
    if (await states.passesSelfTest()) {
      await this.#release(Math.min(rules.probeMessages, this.tally.size));
      await this.#flow.idle();
      if (states.state(wholeProvider) === "working") return true;
    }
    this.stop("provider");
    return false;
  }

  /**
   * Lets the next chunk begin if this one is a retry that waits for the room that retries may have. A chunk that waits
   * for nothing keeps its turn: chunks reserve their messages one after the other, as the time that a chunk has
   * reserved is time that no other chunk gets.
   */
  #yieldRoom(): void {
    if (this.#chunk.isRetry && this.#flow.hasReleased) this.#offerNext();
  }

  /** Releases the chunk's first `count` messages, within the rate limit. */
  async #release(count: number): Promise<void> {
    const { rateLimiter } = this.#deps;
    if (!rateLimiter.isLimited) {
      this.#reserved = count;
      this.#flow.release(count);
      this.#yieldRoom();
      return;
    }
    while (this.#flow.begun < count && this.#reason === undefined) {
      if (performance.now() > this.#deadline) return this.stop("long");
      const { acceptedAt } = this.#chunk.notification;
      await this.#spread(await rateLimiter.reserve(count - this.#flow.begun, acceptedAt));
      this.#yieldRoom();
      // If the provider is slower than the rate limit, released messages must not pile up and go out as a burst.
      await this.#flow.started();
    }
  }

  /**
   * Releases the messages of a reservation evenly over its time. A message may miss its time, as the process stood
   * still or the chunk was not confirmed to be sendable. Then the rest of the reservation is lost: if each process made
   * up for what it has missed, all of that would go out at once.
   */
  async #spread({ messages, startMs, endMs }: Reservation): Promise<void> {
    const first = this.#flow.begun;
    const start = performance.now() + startMs;
    const eachMs = (endMs - startMs) / messages;
    this.#times = { first, start, eachMs };
    this.#reserved = first + messages;
    for (let released = 0; released < messages && this.#reason === undefined; ) {
      const dueInMs = start + released * eachMs - performance.now();
      if (dueInMs > 0) await pause(Math.max(dueInMs, this.#deps.rules.tickMs), this.#stopped.signal);
      const due = Math.floor((performance.now() - start) / eachMs) + 1;
      released = Math.max(released, Math.min(messages, due));
      if (!this.#flow.release(first + released)) return;
    }
  }

  /** When the message at this place may begin, by `performance.now()`; infinite where there is no limit. */
  #timeOf(index: number): number {
    if (this.#times === undefined) return Number.POSITIVE_INFINITY;
    const { first, start, eachMs } = this.#times;
    return start + (index - first) * eachMs;
  }
}

/** The times of a chunk's messages from `first` on, in milliseconds. */
interface Times {
  readonly first: number;
  /** By `performance.now()`. */
  readonly start: number;
  readonly eachMs: number;
}
