/**
 * The sending of one chunk within the rate limit, until all messages are sent or something stops it. If the provider
 * has been paused before, a probe comes first. While nobody can tell whether the notification was paused or cancelled,
 * no message begins. Stores nothing itself.
 */
import { pause } from "../../platform/base/loop.ts";
import { currentSpan, inSpan, type Span } from "../../platform/base/tracing.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { NotificationContent, Outcome, PushProvider, Recipient } from "../providers/provider.ts";
import type { DeliveryDevice, TakenChunk } from "./chunk-repository.ts";
import type { DeliveryMetrics } from "./delivery-metrics.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { Flow } from "./flow.ts";
import type { InFlightBudget } from "./in-flight-budget.ts";
import { messageId } from "./message-id.ts";
import { wholeProvider } from "./provider-pauses.ts";
import type { ProviderRateLimiter, Reservation } from "./rate-limiter.ts";
import type { ServiceStates } from "./service-states.ts";
import { Tally } from "./tally.ts";
import type { Halt, Watch } from "./watch.ts";

/**
 * Why a chunk was not sent to its end. `long`: it takes longer than `maxSendingMs`, so its results are stored in
 * between. `ending`: the process stops. `database`: the rate limiter could not reach the database.
 */
type Stop = Halt | "long" | "ending" | "database";

/** A chunk that is being sent. */
export interface Sending {
  readonly tally: Tally;
  /**
   * Resolves when nothing is in flight any more. Undefined: whatever could be sent was sent, and errors and paused
   * services are why devices are left.
   */
  readonly ended: Promise<Stop | undefined>;
  /**
   * Gives up the devices that were not tried when the chunk's turn or the process ended, so that they need not wait for
   * the answers that others have still to get. @returns their ids; empty if the sending goes on
   */
  takeUntried(): readonly number[];
  /** Stops sending; messages in flight finish. The first reason counts. */
  halt(why: Stop): void;
}

export interface SendDependencies {
  readonly provider: PushProvider;
  /** Shared by all chunks of the provider that this process sends. */
  readonly budget: InFlightBudget;
  readonly rateLimiter: ProviderRateLimiter;
  readonly states: ServiceStates;
  readonly watch: Watch;
  readonly rules: DeliveryRules;
  readonly logger: Logger;
  readonly metrics: DeliveryMetrics;
}

/** Messages of a chunk that have a span of their own: the others say the same, and a send to millions is one trace. */
const maxTraced = 32;

interface SendOptions {
  readonly stopping: AbortSignal;
  /** Called, at least once, when the next chunk may be loaded: this one needs less than the budget now. */
  readonly next: () => void;
}

export function startSending(
  dependencies: SendDependencies,
  chunk: TakenChunk,
  content: NotificationContent,
  devices: readonly DeliveryDevice[],
  options: SendOptions,
): Sending {
  const { stopping } = options;
  const sending = new ChunkSending(dependencies, chunk, content, devices, options);
  const { tally } = sending;
  const halt = (why: Stop) => sending.halt(why);
  const end = () => halt("ending");
  stopping.addEventListener("abort", end);
  const { id, attempt } = chunk;
  const confirm = (asOf: number) => sending.confirm(asOf);
  const unwatch = dependencies.watch.add({ id, attempt, confirm, halt });
  if (stopping.aborted) end();
  const ended = sending.run().finally(() => {
    unwatch();
    stopping.removeEventListener("abort", end);
  });
  return { tally, ended, takeUntried: () => sending.takeUntried(), halt };
}

class ChunkSending {
  readonly #deps: SendDependencies;
  readonly #chunk: TakenChunk;
  readonly #flow: Flow;
  readonly #next: () => void;
  /** Of the chunk's job, where that is traced. */
  readonly #span: Span | undefined = currentSpan();
  readonly #halted = new AbortController();
  readonly #deadline: number;
  /** As of when the chunk is known to be sendable, by `performance.now()`. */
  #confirmedAsOf: number;
  /** As in `performance.now()`, by the device's place in the chunk. */
  readonly #sentAt: number[] = [];
  readonly tally: Tally;
  /** The times of the chunk's messages from `first` up to `end`; undefined: there is no limit. */
  #times: Times | undefined;
  /** Messages that have a time by now. */
  #reserved = 0;
  #stop: Stop | undefined;

  constructor(
    deps: SendDependencies,
    chunk: TakenChunk,
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
      isLast: chunk.comesLast,
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
      this.#haltIfPaused();
      return undefined;
    }
    if (this.#isNearlyStarted(index)) this.#offerNext();
    this.#sentAt[index] = performance.now();
    const recipient = { token, messageId: messageId(notificationId, id) };
    const sent = this.#span && index < maxTraced ? this.#traced(() => send(recipient)) : send(recipient);
    if (provider.selfTest === undefined) return sent;
    return sent.then((outcome) => (outcome.kind === "refused" ? states.selfTest.confirm(outcome) : outcome));
  }

  /** What begins a message may be the answer to another chunk's, so the parent is named. */
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

  /** Lets the next chunk begin. While the provider is paused or probed, one after the other does. */
  #offerNext(): void {
    if (this.#deps.states.state(wholeProvider) === "open") this.#next();
  }

  #onOutcome(index: number, outcome: Outcome): void {
    const { service = wholeProvider, userId = "" } = this.tally.device(index) ?? {};
    this.tally.add(index, outcome);
    const at = this.#sentAt[index] ?? 0;
    this.#deps.states.report(service, userId, outcome, { at, isRetry: this.#chunk.retries > 0 });
    this.#haltIfPaused();
  }

  #onException(err: unknown): void {
    const { provider, logger, metrics } = this.#deps;
    metrics.senderExceptions.inc({ provider: provider.name });
    // The message of the error may quote the token.
    const error = err instanceof Error ? err.name : "unknown";
    logger.error({ provider: provider.name, error }, "A sender has a defect: it threw an exception");
  }

  #haltIfPaused(): void {
    const { provider, states } = this.#deps;
    if (provider.serviceOf === undefined && states.state(wholeProvider) === "paused") this.halt("provider");
  }

  /** The chunk is sendable, as a check has found that began then. What had to wait for it goes on. */
  confirm(asOf: number): void {
    this.#confirmedAsOf = asOf;
    this.#flow.onRoom();
  }

  /** Stops sending; messages in flight finish. The first reason counts. */
  halt(why: Stop): void {
    this.#stop ??= why;
    this.#flow.stop();
    this.#halted.abort();
    // A job that comes too early, as the provider is paused, is refused.
    this.#next();
  }

  takeUntried(): readonly number[] {
    return this.#stop === "long" || this.#stop === "ending" ? this.tally.takeFrom(this.#flow.begun) : [];
  }

  async run(): Promise<Stop | undefined> {
    const { states, logger } = this.#deps;
    try {
      if (states.state(wholeProvider) === "open" || (await this.#probe())) {
        await this.#release(this.tally.size);
      }
    } catch (err) {
      // Only the rate limiter uses the database here. The results are stored as soon as the database is back.
      logger.warn({ err, chunkId: this.#chunk.id }, "The rate limiter failed, so a chunk is queued again");
      this.halt("database");
    }
    await this.#flow.idle();
    await states.stored();
    return this.#stop;
  }

  /** Sends a few messages and waits for their outcomes. @returns whether the provider works again */
  async #probe(): Promise<boolean> {
    const { states, rules } = this.#deps;
    if (await states.passesSelfTest()) {
      await this.#release(Math.min(rules.probeMessages, this.tally.size));
      await this.#flow.idle();
      if (states.state(wholeProvider) === "open") return true;
    }
    this.halt("provider");
    return false;
  }

  /**
   * What comes last, and waits for the room that it may have, keeps nobody else waiting. Only then: one chunk after the
   * other reserves its messages, as what a chunk has reserved is time that no other one gets.
   */
  #yieldRoom(): void {
    if (this.#chunk.comesLast && this.#flow.hasReleased) this.#offerNext();
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
    while (this.#flow.begun < count && this.#stop === undefined) {
      if (performance.now() > this.#deadline) return this.halt("long");
      const { acceptedAt } = this.#chunk.notification;
      await this.#spread(await rateLimiter.reserve(count - this.#flow.begun, acceptedAt));
      this.#yieldRoom();
      // If the provider is slower than the rate limit, released messages must not pile up and go out as a burst.
      await this.#flow.started();
    }
  }

  /**
   * Releases the messages of a reservation evenly over its time. What has missed its time, as the process stood still or
   * nobody could tell whether it may begin, loses what is left of the reservation: if each process made up for what it
   * has missed, all of that would go out at once.
   */
  async #spread({ messages, startMs, endMs }: Reservation): Promise<void> {
    const first = this.#flow.begun;
    const start = performance.now() + startMs;
    const eachMs = (endMs - startMs) / messages;
    this.#times = { first, start, eachMs };
    this.#reserved = first + messages;
    for (let released = 0; released < messages && this.#stop === undefined; ) {
      const dueInMs = start + released * eachMs - performance.now();
      if (dueInMs > 0) await pause(Math.max(dueInMs, this.#deps.rules.tickMs), this.#halted.signal);
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
